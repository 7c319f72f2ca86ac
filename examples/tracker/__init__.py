"""An issue tracker as a web service.

.venv/bin/uvicorn examples.tracker.app:app
"""
