"""An issue tracker as a web service.

DATABASE=tracker.db .venv/bin/uvicorn examples.tracker.app:app
"""
