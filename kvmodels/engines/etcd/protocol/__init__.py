"""The part of etcd's gRPC interface that the engine uses: messages, calls, endpoints, and what is sent again."""
