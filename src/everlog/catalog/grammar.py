"""The syntax in which a field is declared without Python.

    str  int  float  bool  object  list  list[str]  any     a type
    planned | doing | "in review"                           one of these texts
    int?                                                    may be null, and is when it is left out
    str = ''      list[str] = []      int = 3               a default: JSON, or text in single quotes
    str personal of customer                                sealed with a key of the person whom `customer` names

`parse_field` reads them and `str(field)` writes them back, so that both always agree.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

import msgspec

from everlog.catalog.personal import Personal
from everlog.core.canonical import parse_json
from everlog.core.text import did_you_mean
from everlog.errors import NotCanonical

TYPE_NAMES = ("str", "int", "float", "bool", "object", "list", "any")
NESTED_MAX = 8

_PYTHON_TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "object": dict[str, Any],
    "any": Any,
}
_WORD = r"\w[\w.:/-]*"
_TOKEN = re.compile(rf"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|{_WORD}|[|\[\]?=])""")
_BARE = re.compile(_WORD)


class FieldError(ValueError):
    """The text does not declare a field; the message says what would."""


class FieldType(msgspec.Struct, frozen=True, kw_only=True):
    """A type by its name, or a choice of texts, or a list of one of these."""

    name: str = "choice"
    choices: tuple[str, ...] = ()
    item: FieldType | None = None
    nullable: bool = False

    def __str__(self) -> str:
        if self.item is not None:
            text = f"list[{self.item}]"
        elif len(self.choices) == 1:
            text = json.dumps(self.choices[0], ensure_ascii=False)  # a single bare word would be read as a type
        else:
            text = " | ".join(map(choice_text, self.choices)) or self.name
        return f"{text}?" if self.nullable else text

    def annotation(self) -> Any:
        """Return the Python type that msgspec checks."""
        if self.choices:
            literal: Any = Literal
            found = literal[self.choices]
        elif self.name == "list":
            found = list[self.item.annotation() if self.item else Any]  # type: ignore[misc]
        else:
            found = _PYTHON_TYPES[self.name]
        return found | None if self.nullable and found is not Any else found


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A declared field: its type, and its default if it may be left out."""

    type: FieldType
    required: bool = True
    default: Any = None
    personal_of: str = ""  # the field that names the person whom the value is about

    def __str__(self) -> str:
        text = f"{self.type} personal of {self.personal_of}" if self.personal_of else str(self.type)
        if self.required or (self.default is None and self.type.nullable):
            return text
        return f"{text} = {json.dumps(self.default, ensure_ascii=False)}"

    def annotation(self) -> Any:
        """Return the Python type that msgspec checks, marked if the field is personal."""
        found = self.type.annotation()
        return Annotated[found, Personal(self.personal_of)] if self.personal_of else found


def parse_field(text: str) -> Field:
    """Return the field that the text declares; raise FieldError with what would be right."""
    tokens, default_text = _tokens(text)
    reader = _Reader(tokens)
    found = reader.type(0)
    of = reader.personal_of()
    if reader.next is not None:
        raise FieldError(f"{reader.next!r} does not belong after {found}")
    if default_text is None:
        return Field(type=found, required=not found.nullable, personal_of=of)
    return Field(type=found, required=False, default=_default(found, default_text), personal_of=of)


def choice_text(choice: Any) -> str:
    """Return a choice as it is written: bare where that is clear, else quoted."""
    if isinstance(choice, str) and _BARE.fullmatch(choice) and choice not in TYPE_NAMES:
        return choice
    return json.dumps(choice, ensure_ascii=False)


def _tokens(text: str) -> tuple[list[str], str | None]:
    tokens: list[str] = []
    place = 0
    while text[place:].strip():
        token = _TOKEN.match(text, place)
        if token is None:
            raise FieldError(f"{text[place:].strip()[:20]!r} cannot be read; quote a text that is not one word")
        place = token.end()
        if token[1] == "=":
            return tokens, text[place:].strip()
        tokens.append(token[1])
    return tokens, None


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[str]) -> None:
        self._ahead = tokens[::-1]

    @property
    def next(self) -> str | None:
        return self._ahead[-1] if self._ahead else None

    def take(self, token: str) -> bool:
        if self.next != token:
            return False
        self._ahead.pop()
        return True

    def type(self, depth: int) -> FieldType:
        if depth > NESTED_MAX:
            raise FieldError(f"lists are nested at most {NESTED_MAX} deep")
        first = self._word()
        if first in TYPE_NAMES and self.next != "|":
            return self._named(first, depth)
        if self.next != "|" and first[0] not in "\"'":
            meant = did_you_mean(first, TYPE_NAMES) or f"the types are {', '.join(TYPE_NAMES)}"
            raise FieldError(f"{first} is not a type, and a choice has several texts, as {first} | other; {meant}")
        words = [first]
        while self.take("|"):
            words.append(self._word())
        return FieldType(choices=_choices(words), nullable=self.take("?"))

    def personal_of(self) -> str:
        """Return the field after the words `personal of`; nothing if they do not follow."""
        if not self.take("personal"):
            return ""
        if not self.take("of") or self.next is None or not _BARE.fullmatch(self.next):
            raise FieldError("personal is followed by of and the field that names the person: personal of customer")
        return self._ahead.pop()

    def _named(self, name: str, depth: int) -> FieldType:
        item = None
        if name == "list" and self.take("["):
            item = self.type(depth + 1)
            if not self.take("]"):
                raise FieldError(f"a ] is missing after list[{item}")
        return FieldType(name=name, item=item, nullable=self.take("?"))

    def _word(self) -> str:
        if self.next is None or self.next in "|[]?":
            raise FieldError(f"a type is expected {'at the end' if self.next is None else f'before {self.next}'}")
        return self._ahead.pop()


def _choices(words: list[str]) -> tuple[str, ...]:
    for word in words:
        if word in TYPE_NAMES:
            raise FieldError(f'a field has one type; write "{word}" in quotes if the text is meant')
    choices = tuple(_text(word) if word[0] in "\"'" else word for word in words)
    twice = [choice for choice in choices if choices.count(choice) > 1]
    if twice:
        raise FieldError(f"the choice {twice[0]!r} appears twice")
    return choices


def _default(expected: FieldType, text: str) -> Any:
    if text in expected.choices:
        return text
    value = _literal(text)
    try:
        return msgspec.convert(value, expected.annotation())
    except msgspec.ValidationError as error:
        if value is None:
            raise FieldError(f"the default null needs a ?, as in {expected}?") from error
        raise FieldError(f"the default {text} is not a {expected}") from error


def _literal(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] == "'" and "'" not in text[1:-1]:
        return text[1:-1]
    try:
        return parse_json(text)
    except NotCanonical as error:
        if not text:
            raise FieldError("a default is missing after =") from error
        raise FieldError(f"the default {text} is not JSON; a text needs quotes: '{text}'") from error


def _text(quoted: str) -> str:
    value = _literal(quoted)
    if not isinstance(value, str):
        raise FieldError(f"{quoted} is not a text")
    return value
