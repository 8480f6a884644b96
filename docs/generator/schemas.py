"""Generate JSON Schemas of run, site and sweep files, for editors (draft 2020-12)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from docs.generator.fields import human_default
from hpcflow.documents.suggest import submodels
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.spec import RunSpec
from hpcflow.model.sweep import SweepSpec
from hpcflow.sites.loader import MACHINE, Machine, fill_in
from hpcflow.sites.schema import Site

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_NULL: Final = {"type": "null"}
#: Keys that stay beside the `anyOf` when `null` is added to a schema.
_ANNOTATIONS: Final[tuple[str, ...]] = ("description", "default", "examples")

_EXTENDS: Final = {
    "description": "Another run's file, relative to this one, whose keys this one inherits.",
    "type": ["string", "null"],
    "minLength": 1,
    "examples": ["base.yaml"],
}


def run_schema() -> dict[str, Any]:
    """Return the schema of a run's file, which may be incomplete if it extends another."""
    schema = _schema(RunSpec, "hpcflow run")
    for section in (schema, *schema["$defs"].values()):
        _allow_null(section)
    for name in ("variables", "secrets"):
        mapping = schema["$defs"]["Environment"]["properties"][name]["anyOf"][0]
        by_name = mapping["patternProperties"]
        mapping["patternProperties"] = {form: _or_null(value) for form, value in by_name.items()}
    schema["properties"] = {
        "$schema": {"description": "For the editor.", "type": "string"},
        "extends": _EXTENDS,
        **schema["properties"],
    }
    schema["if"] = {"required": ["extends"]}
    schema["else"] = {
        "required": schema.pop("required"),
        "oneOf": [{"required": ["script"]}, {"required": ["command"]}],
    }
    return schema


def site_schema() -> dict[str, Any]:
    schema = _schema(Site, "hpcflow site")
    properties = schema["$defs"]["Partition"]["properties"]
    # The keys that a local site may leave to the machine come from the code that fills them in.
    partition = dict.fromkeys(properties, MACHINE)
    fill_in({"partitions": {"any": partition}}, Machine(cpus=1, mem_mb=1, gpus=0))
    for key in [key for key, value in partition.items() if value != MACHINE]:
        properties[key] = _or(properties[key], {"const": MACHINE})
    return schema


def sweep_schema() -> dict[str, Any]:
    schema = _schema(SweepSpec, "hpcflow sweep")
    for section in (schema, *schema["$defs"].values()):
        _allow_null(section)
    properties = schema["properties"]
    for key in ("sampler", "pruner"):
        properties[key] = _or(properties[key], {"$ref": f"#/$defs/{key.capitalize()}Kind"})
    schema["properties"] = {
        "$schema": {"description": "For the editor.", "type": "string"},
        **properties,
    }
    schema["$defs"]["Pruner"]["anyOf"] = [_has("type"), {"maxProperties": 0}]
    schema["oneOf"] = [_has("objective"), _has("objectives")]
    ends = [_has(key) for key in ("trials", "gpu_hours", "cost_usd", "deadline")]
    schema["anyOf"] = [_has("sampler", _ENDS_BY_ITSELF), _has("budget", {"anyOf": ends})]
    return schema


_ENDS: Final = {"enum": [SamplerKind.GRID.value, SamplerKind.PBT.value]}
#: A sampler that needs no budget.
_ENDS_BY_ITSELF: Final = {"anyOf": [_ENDS, {"properties": {"type": _ENDS}, "required": ["type"]}]}


def _has(key: str, value: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of a mapping with ``key``, not ``null``, whose value matches ``value``."""
    return {"required": [key], "properties": {key: {"not": _NULL} if value is None else value}}


def _schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    for section in (schema, *schema["$defs"].values()):
        section.pop("title", None)
        for value in section.get("properties", {}).values():
            value.pop("title", None)
            if "patternProperties" in value:  # other keys are errors
                value["additionalProperties"] = False
    _write_defaults(model, schema)
    return {"$schema": DRAFT, "title": title, **schema}


def _write_defaults(model: type[BaseModel], schema: dict[str, Any]) -> None:
    """Write defaults as in YAML (``10m``); no empty ones."""
    sections = {name: part for name, part in schema["$defs"].items() if "properties" in part}
    found = {model.__name__: model, **_models_by_name(model)}
    for name, section in {**sections, model.__name__: schema}.items():
        for field_name, field in found[name].model_fields.items():
            value = section["properties"][field.alias or field_name]
            value.pop("default", None)
            default = human_default(field_name, field)
            if default not in (None, [], {}):
                value["default"] = default


def _models_by_name(model: Any) -> dict[str, Any]:
    models: dict[str, Any] = {}
    for field in model.model_fields.values():
        for _, section in submodels(field.annotation):
            models |= {section.__name__: section, **_models_by_name(section)}
    return models


def _allow_null(section: dict[str, Any]) -> None:
    """Allow ``null`` for every optional key, with the meaning of its default."""
    properties = section.get("properties", {})
    for key, value in properties.items():
        if key not in section.get("required", ()):
            properties[key] = _or_null(value)


def _or_null(value: dict[str, Any]) -> dict[str, Any]:
    return value if _NULL in value.get("anyOf", ()) else _or(value, _NULL)


def _or(value: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return ``value`` that also allows ``other``."""
    kept = {key: value[key] for key in _ANNOTATIONS if key in value}
    bare = {key: part for key, part in value.items() if key not in kept}
    options = bare["anyOf"] if set(bare) == {"anyOf"} else [bare]
    return {"anyOf": [*options, other], **kept}
