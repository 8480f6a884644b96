"""Refuse a Postgres database in which another role could act as this user, or change all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hpcflow.errors import LedgerError
from hpcflow.ledger.url import DatabaseUrl

#: Postgres resolves or calls these by itself, with the rights of the user who sends a statement:
#: - an operator or a function of a type that fits better than its own;
#: - a trigger; and its condition, which may hold any statement (``query_to_xml``);
#: - the triggers of another role's table, by a foreign key that deletes there;
#: - everything in another role's schema, whose owner can replace the tables in it.
#: Row-level security does not restrict a table's owner, nor the rights to create triggers and
#: foreign keys and to truncate a table. A role that bypasses it reads all rows as its own.
#: The right to create any of these would let another role do so while this user is connected.
#: Only a superuser, the database's owner and this user may have them. Postgres does not record who
#: created a trigger, so none may have a condition.
_FOUND: Final = """
WITH ours AS (SELECT oid FROM pg_namespace WHERE nspname = ANY(%(schemas)s)),
trusted AS (
    SELECT oid FROM pg_roles WHERE rolsuper OR rolname IN (current_user, 'pg_database_owner')
        OR oid = (SELECT datdba FROM pg_database WHERE datname = current_database())
),
used AS (
    SELECT oid, relname, relowner, relacl FROM pg_class
    WHERE relnamespace IN (SELECT oid FROM ours) AND relname = ANY(%(tables)s)
),
granted AS (
    SELECT relname, privilege_type, grantee FROM used, aclexplode(relacl)
    UNION
    SELECT relname, privilege_type, grantee
    FROM used JOIN pg_attribute ON attrelid = used.oid, aclexplode(attacl)
),
called AS (
    SELECT tgname, tgrelid, tgfoid, tgqual IS NOT NULL AS has_condition
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE relnamespace IN (SELECT oid FROM ours) AND NOT tgisinternal
)
SELECT what, name, COALESCE(rolname, 'PUBLIC') FROM (
    SELECT 'the table' AS what, relname AS name, relowner AS owner FROM used
    UNION ALL
    SELECT 'the operator', oprname, oprowner FROM pg_operator
    WHERE oprnamespace IN (SELECT oid FROM ours)
    UNION ALL
    SELECT 'the function', proname, proowner FROM pg_proc AS theirs
    WHERE pronamespace IN (SELECT oid FROM ours) AND EXISTS (
        SELECT FROM pg_proc
        WHERE proname = theirs.proname AND pronamespace = 'pg_catalog'::regnamespace
    )
    UNION ALL
    SELECT 'the trigger', tgname, proowner FROM called JOIN pg_proc ON pg_proc.oid = tgfoid
    UNION ALL
    SELECT 'the foreign key', conname, theirs.relowner FROM pg_constraint
    JOIN pg_class AS theirs ON theirs.oid = conrelid JOIN pg_class AS its ON its.oid = confrelid
    WHERE contype = 'f' AND its.relnamespace IN (SELECT oid FROM ours)
        AND theirs.relowner <> its.relowner
    UNION ALL
    SELECT 'the schema', nspname, nspowner FROM pg_namespace
    WHERE oid IN (SELECT oid FROM ours)
    UNION ALL
    SELECT privilege_type, nspname, grantee FROM pg_namespace, aclexplode(nspacl)
    WHERE oid IN (SELECT oid FROM ours) AND privilege_type = 'CREATE'
    UNION ALL
    SELECT privilege_type, relname, grantee FROM granted
    WHERE privilege_type IN ('REFERENCES', 'TRIGGER', 'TRUNCATE')
    UNION ALL
    SELECT 'rows', relname, grantee FROM granted
    WHERE privilege_type IN ('INSERT', 'UPDATE') AND EXISTS (
        SELECT FROM pg_roles WHERE rolname = current_user AND (rolsuper OR rolbypassrls)
    )
) AS found LEFT JOIN pg_roles ON pg_roles.oid = owner
WHERE owner NOT IN (SELECT oid FROM trusted)
UNION ALL
SELECT 'the condition of the trigger', tgname, rolname
FROM called JOIN pg_class ON pg_class.oid = tgrelid JOIN pg_roles ON pg_roles.oid = relowner
WHERE has_condition
UNION ALL
SELECT 'missing', name, '' FROM unnest(%(schemas)s::text[]) AS name
WHERE name NOT IN (SELECT nspname FROM pg_namespace)
LIMIT 1
"""


def refuse_other_roles(url: DatabaseUrl, raw: Any, tables: Sequence[str]) -> None:
    """Refuse a database in which another role could act as this user, or change all rows.

    Also reduce ``search_path`` to the schemas that were checked: another role could create a
    missing schema, but cannot take the name of one that it does not own.

    Args:
        raw: the driver's connection, with autocommit.
        tables: the names of the tables and views that are used.

    Raises:
        LedgerError: the database is refused; the error says what to do.
        Exception: from the driver.
    """
    ((schemas,),) = raw.execute("SELECT pg_catalog.current_schemas(false)").fetchall()
    raw.execute("SET search_path TO pg_catalog")
    found = raw.execute(_FOUND, {"schemas": schemas, "tables": list(tables)}).fetchone()
    if found is not None:
        raise _refusal(url, *found)
    # Postgres searches pg_catalog first if it is not named, and creates tables in the first named
    # schema.
    names = [name for name in schemas if name not in ("pg_catalog", "pg_temp")]
    path = ['"{}"'.format(name.replace('"', '""')) for name in names]
    if path:
        path.append("pg_temp")
    raw.execute("SELECT pg_catalog.set_config('search_path', %s, false)", [", ".join(path)])


def _refusal(url: DatabaseUrl, what: str, name: str, role: str) -> LedgerError:
    if what == "missing":
        gone = f"the schema {name!r} of the ledger {url} was removed or renamed a moment ago"
        return LedgerError(gone, next_action="try again")
    ask = "ask the owner of the database to"
    if what == "rows":
        why = (
            f"lets {role!r} write to the table {name!r}, and your role bypasses row-level security"
        )
        todo = f"connect as a role that is neither a superuser nor has BYPASSRLS; or {ask} REVOKE"
    elif what == "the table":
        why = f"has the table {name!r} of {role!r}, who can change every row in it"
        todo = f"{ask} take it over with ALTER TABLE … OWNER TO, or to name another database"
    elif what == "CREATE":
        why = f"lets {role!r} create functions and operators in the schema {name!r}"
        todo = f"{ask} REVOKE CREATE ON SCHEMA {name} FROM {role}"
    elif what.isupper():
        why = f"gives {role!r} the right {what} on the table {name!r}"
        to_whom = "PUBLIC" if role == "PUBLIC" else "that role"
        todo = f"{ask} REVOKE REFERENCES, TRIGGER, TRUNCATE on all tables from {to_whom}"
    else:
        why = f"has {what} {name!r} of {role!r}, which would be executed as you"
        todo = (
            f"{ask} remove it, and to keep other roles from creating such things: "
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC"
        )
    error = LedgerError(f"the ledger {url} {why}", next_action=todo)
    error.retryable = False
    return error
