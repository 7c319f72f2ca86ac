"""Models of a service that monitors checks: the fields of healthchecks that its queries name, with times as numbers."""

from __future__ import annotations

from typing import Any

from django.db.models import (
    CASCADE,
    CharField,
    ForeignKey,
    IntegerField,
    ManyToManyField,
    Model,
    OneToOneField,
    UniqueConstraint,
)


class User(Model):
    email = CharField(max_length=50, unique=True)
    date_joined = IntegerField(default=0)
    last_login = IntegerField(null=True)


class Profile(Model):
    user: Any = OneToOneField(User, CASCADE)
    next_report_date = IntegerField(null=True)
    reports = CharField(max_length=10, default="monthly")
    nag_period = IntegerField(default=0)
    next_nag_date = IntegerField(null=True)
    deletion_notice_date = IntegerField(null=True)


class Project(Model):
    name = CharField(max_length=50)
    owner: Any = ForeignKey(User, CASCADE)
    ping_key = CharField(max_length=50, unique=True)
    badge_key = CharField(max_length=50, unique=True)


class Member(Model):
    user: Any = ForeignKey(User, CASCADE, related_name="memberships")
    project: Any = ForeignKey(Project, CASCADE)
    transfer_request_date = IntegerField(null=True)

    class Meta:
        constraints = [UniqueConstraint(fields=["user", "project"], name="one_membership")]


class Check(Model):
    code = CharField(max_length=50, unique=True)
    project: Any = ForeignKey(Project, CASCADE)
    name = CharField(max_length=50)
    slug = CharField(max_length=50)
    tags = CharField(max_length=50, default="")
    status = CharField(max_length=10, default="new")
    last_ping = IntegerField(null=True)
    alert_after = IntegerField(null=True)
    n_pings = IntegerField(default=0)


class Ping(Model):
    owner: Any = ForeignKey(Check, CASCADE)
    n = IntegerField()
    created = IntegerField()
    kind = CharField(max_length=10, default="")


class Channel(Model):
    code = CharField(max_length=50, unique=True)
    project: Any = ForeignKey(Project, CASCADE)
    kind = CharField(max_length=10)
    created = IntegerField()
    last_error = CharField(max_length=50, default="")
    checks: Any = ManyToManyField(Check)


class Notification(Model):
    code = CharField(max_length=50, unique=True)
    owner: Any = ForeignKey(Check, CASCADE)
    channel: Any = ForeignKey(Channel, CASCADE)
    created = IntegerField()
    check_status = CharField(max_length=10)


class Flip(Model):
    owner: Any = ForeignKey(Check, CASCADE)
    created = IntegerField()
    old_status = CharField(max_length=10)
    processed = IntegerField(null=True)


THROUGH = {"CheckChannels": Channel.checks.through}
Channel.checks.through.ends = ("check", "channel")
