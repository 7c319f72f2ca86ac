"""Mistakes that both type checkers must report, with exactly the code that is ignored here: an unused one is an error."""

from kvmodels import Database, Index, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.schema.expressions import Expression


class User(KvModel):
    id: PrimaryKey[int]
    email: Unique[str]
    age: Indexed[int | None]
    plan: str = "free"


class Defaulted(KvModel):
    id: PrimaryKey[int] = 1  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


def mistakes(user: User, db: Database) -> None:
    users = db[User]
    users.filter(User.plan == "pro")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    print(User.age > "x")  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue, reportUnknownArgumentType]
    User.age.startswith("x")  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    User.email.in_([1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    User.age.between(1, 2, bounds="<>")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    print(User.nickname)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    User(id=1, age=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    User(id=1, age=1, email=2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    user.email = 5  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    print(users.get(1).age.bit_length())  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    wrong: Expression = User.age.desc()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(wrong)
    Unique[str](nulls="none")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Index("a", nulls="equal")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
