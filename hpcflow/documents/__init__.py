"""Read YAML files: their values, and the file and line of each.

``reader`` turns a file into a :class:`Document`; ``validate`` turns a document into a pydantic
model, or into one error that lists what is wrong and where.
"""

from hpcflow.documents.document import Document, KeyPath, Place, require_purpose
from hpcflow.documents.problems import as_one_error, validate
from hpcflow.documents.reader import parse_document, read_document

__all__ = [
    "Document",
    "KeyPath",
    "Place",
    "as_one_error",
    "parse_document",
    "read_document",
    "require_purpose",
    "validate",
]
