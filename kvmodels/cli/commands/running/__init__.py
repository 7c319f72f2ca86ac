"""Commands that run until they are ended: servers, the admin page and followers."""
