"""The paths of the control plane: what a text names, its stream, and that nothing is learned of other orgs."""

from __future__ import annotations

import pytest

from everlog.errors import InvalidField, NoSuchSubject
from everlog.programs.controlplane.paths import ResourcePath, path_of, require_name, require_within


@pytest.mark.parametrize(
    ("text", "kind", "stream"),
    [
        ("acme", "org", "org/acme"),
        ("acme/shop", "app", "app/acme.shop"),
        ("acme/shop/prod", "environment", "environment/acme.shop.prod"),
    ],
)
def test_a_path_names_its_kind_and_its_stream(text: str, kind: str, stream: str) -> None:
    path = path_of(text, kind)
    assert (path.kind, path.stream, path.scope, path.org) == (kind, stream, text, "acme")
    assert str(path.around or "") == text.rpartition("/")[0]


@pytest.mark.parametrize("text", ["", "acme/", "Acme", "acme.shop", "a/b/c/d", "-acme", "acme-", "a" * 41])
def test_another_text_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(InvalidField) as refused:
        path_of(text)
    assert "ORG/APP/ENVIRONMENT" in refused.value.why


def test_a_path_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidField) as refused:
        path_of("acme/shop", "environment")
    assert refused.value.why.startswith("it is written ORG/APP/ENVIRONMENT,")


def test_two_environments_never_share_a_stream() -> None:
    # No name has a dot, so the parts of a stream can be told apart.
    assert path_of("acme/shop/prod").of("secret", "KEY") == "secret/acme.shop.prod.KEY"
    with pytest.raises(InvalidField):
        path_of("acme/shop.prod/x")


@pytest.mark.parametrize(
    ("what", "right", "wrong"),
    [
        ("host", "shop.example.org", "localhost"),
        ("secret", "DATABASE_URL", "database_url"),
        ("deploy", "build-17.a", "-17"),
        ("volume", "data", "Data"),
        ("scale", "web", "web.1"),
    ],
)
def test_a_name_has_the_shape_of_its_kind(what: str, right: str, wrong: str) -> None:
    assert require_name(what, right) == right
    with pytest.raises(InvalidField) as refused:
        require_name(what, wrong)
    assert wrong not in str(refused.value), "a secret may have been typed in its place"


def test_an_environment_in_place_of_a_deploy_leads_to_its_deploys() -> None:
    with pytest.raises(InvalidField) as refused:
        require_name("deploy", "acme/shop/prod")
    assert refused.value.hint == "everlog control deploy history acme/shop/prod"


def test_a_path_outside_of_the_scope_looks_like_one_that_does_not_exist() -> None:
    require_within(ResourcePath(("acme", "shop")), "acme")
    with pytest.raises(NoSuchSubject, match="there is no app acme/shop"):
        require_within(ResourcePath(("acme", "shop")), "globex")
    with pytest.raises(NoSuchSubject):
        require_within(ResourcePath(("acme",)), "acme/shop")
