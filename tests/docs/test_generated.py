"""Pages of the reference say what the code says."""

import re
from pathlib import Path

import msgspec
import pytest

from relayd.cli.run import EXIT_CODES
from relayd.client import errors as client_errors
from relayd.protocol.errors import ERRORS, RelaydError
from relayd.protocol.events_page import events_page
from relayd.protocol.kinds import KINDS
from relayd.protocol.messages import (
    Acknowledged,
    AnyRequest,
    Limits,
    Opened,
    Page,
    Recorded,
    RelayEntry,
    RelayStatus,
    Welcome,
)
from relayd.recovery.refusal import Reason
from relayd.relay.commands_page import commands_page

REFERENCE = Path(__file__).parents[2] / "docs/reference"
ERRORS_PAGE = (REFERENCE / "errors.md").read_text()


def test_the_page_of_commands_is_drawn_from_the_table():
    page = Path(__file__).parents[2] / "docs" / "internals" / "commands.md"
    assert page.read_text() == commands_page(), "run `make docs`"


def rows(page, title):
    """The rows of the first table under a title, as lists of cells."""
    section = re.split(r"^#+ ", page.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def test_the_page_of_events_is_what_the_structs_say():
    assert (REFERENCE / "events.md").read_text() == events_page(), "run `make docs`"


def test_the_page_of_events_has_each_kind_of_relayds_own():
    assert re.findall(r"^### (\S+)$", events_page(), flags=re.MULTILINE) == list(KINDS)


def test_the_table_of_codes_is_the_tree_of_errors():
    said = {code.strip("`"): (name.strip("`"), again) for code, name, _, again in rows(ERRORS_PAGE, "Codes")}
    assert said == {code: (kind.__name__, "yes" if kind.retryable else "no") for code, kind in ERRORS.items()}


def test_the_clients_own_errors_are_on_the_page_with_their_codes():
    own = [
        kind
        for kind in vars(client_errors).values()
        if isinstance(kind, type) and kind.__module__ == client_errors.__name__
    ]
    said = {
        re.findall(r"`(\w+)`", name)[0]: (code.strip("`"), again)
        for code, name, _, again in rows(ERRORS_PAGE, "Of the clients")
    }
    assert said == {
        kind.__name__: (kind.code, "yes" if kind.retryable else "no") for kind in own if issubclass(kind, RelaydError)
    }


def test_the_reasons_to_refuse_an_opening_are_on_the_page_of_the_journal():
    page = (REFERENCE / "journal.md").read_text()
    assert [reason for reason in Reason.__args__ if f"`{reason}`" not in page] == []


def test_the_table_of_operations_has_each_operation():
    said = [row[0].strip("`") for row in rows((REFERENCE / "protocol.md").read_text(), "Operations")]
    assert sorted(said) == sorted(request.__struct_config__.tag for request in AnyRequest.__args__)


@pytest.mark.parametrize("request_type", AnyRequest.__args__, ids=lambda kind: kind.__struct_config__.tag)
def test_the_row_of_an_operation_has_its_fields_and_no_others(request_type):
    table = {row[0].strip("`"): row[1] for row in rows((REFERENCE / "protocol.md").read_text(), "Operations")}
    cell = re.sub(r": (\[\[.*?\]…\]|[^,]*(, `[^,]*)*)", "", table[request_type.__struct_config__.tag])
    said = {name: "?" in name for name in re.split(r", ", cell) if name != "–"}
    fields = {
        field.name + "?" * (not field.required): not field.required for field in msgspec.structs.fields(request_type)
    }
    fields.pop("id")
    assert said == fields


@pytest.mark.parametrize("kind", [RelayStatus, Limits, RelayEntry, Recorded, Page, Welcome, Opened, Acknowledged])
def test_every_field_of_a_response_is_on_the_page_of_the_protocol(kind):
    page = (REFERENCE / "protocol.md").read_text()
    names = [field.name for field in msgspec.structs.fields(kind)]
    assert [name for name in names if not re.search(rf"[{{ \[`]{name}\b", page)] == []


@pytest.mark.parametrize("code", sorted(EXIT_CODES.values()))
def test_each_exit_code_of_errors_is_on_the_page_of_the_command_line(code):
    said = [row[0] for row in rows((REFERENCE / "cli.md").read_text(), "Exit codes")]
    assert str(code) in said
