"""Programs that the settings name and that cannot be used: what they would have is unknown to a catalog."""

from __future__ import annotations

from everlog.errors import InvalidSettings, UnknownType


class LeftOut(dict[str, InvalidSettings]):
    """Why programs cannot be used, by their words in the setting `programs`."""

    def require_none(self, what: str, why: str) -> None:
        """Refuse something that would go wrong, as `why` says, without the types of a program that is left out."""
        for error in self.values():
            raise InvalidSettings(f"{what} needs every program of the settings: {error}", why=why, hint=error.hint)

    def unknown_type(self, event_type: str, meant: str) -> UnknownType:
        """Return the error for a type that no catalog has, and that one of these programs may have."""
        why = "a log accepts only the event types in its catalog"
        hint = f"see everlog schema list, or add it: everlog schema add {event_type} name:type …"
        for wrong in self.values():
            why, hint = f"a program of the settings may have it: {wrong}", wrong.hint
        return UnknownType(
            f"the event type {event_type} is not known",
            why=why,
            hint=f"{meant} " * bool(meant) + hint,
            type=event_type,
        )
