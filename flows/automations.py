"""What the Prefect server does by itself about our flow runs: notice the dead, resume them, call a webhook.

Ours are known by how their names begin. Making them again changes only those that differ: a change begins the wait for
a missed night anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import AutomationSort
from prefect.events.actions import CallWebhook, ChangeFlowRunState
from prefect.events.schemas.automations import Automation, AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry
from pydantic import SecretStr

from flows.api import require_api
from flows.runs import FLOWS

NIGHTLY = "nightly"
PREFIX = "batchjobs: "
_RESUMED = "It crashed; what is committed stays, and the rest goes on."
_BLOCK = "batchjobs-notifications"
_RUN = {"prefect.resource.id": "prefect.flow-run.*"}
_OUR_FLOW = {"prefect.resource.role": "flow", "prefect.resource.name": FLOWS}
_DEPLOYED = {"prefect.resource.role": "deployment"}
_BAD_ENDS = {"prefect.flow-run.Failed", "prefect.flow-run.Partial", "prefect.flow-run.Refused",
             "prefect.flow-run.Crashed"}  # fmt: skip

# `text` is what chat programs show; the rest is for machines.
_ENDED = """{
  "text": {{ (flow_run.name ~ ": " ~ event.resource["prefect.state-name"] ~ ". "
              ~ event.resource["prefect.state-message"]) | tojson }},
  "event": {{ event.event | tojson }},
  "flow_run": {{ event.resource.id | tojson }},
  "starts": {{ event.resource["prefect.run-count"] | tojson }},
  "url": {{ flow_run | ui_url | tojson }}
}"""

Change = Literal["created", "changed", "unchanged", "removed", "resumed"]


@dataclass(frozen=True)
class Wanted:
    """What the automations are to do. Times in seconds."""

    heartbeat_within: float = 540.0  # three of Prefect's heartbeats
    max_resumes: int = 3
    webhook: str | None = None
    missed_after: float = 26 * 3600.0


def set_automations(wanted: Wanted) -> dict[str, Change]:
    """Make the server's automations of ours what is wanted; what became of each, by name. Raises Refused."""
    require_api("nothing was changed")
    with get_client(sync_client=True) as client:
        found = _ours(client)
        ours = list(_automations(client, wanted))
        changes = {automation.name: _set(client, automation, found.pop(automation.name, None)) for automation in ours}
        return changes | _delete(client, found) | resume_crashed(client, wanted.max_resumes)


def at_server_start() -> dict[str, Change]:
    """What a server that has just started needs: automations if it has none of ours, and those resumed that it missed.

    Raises Refused.
    """
    require_api("nothing was changed")
    with get_client(sync_client=True) as client:
        if _ours(client):
            return resume_crashed(client, Wanted().max_resumes)
    return set_automations(Wanted())


def resume_crashed(client: SyncPrefectClient, most: int) -> dict[str, Change]:
    """Do by hand what the automation should have done in the last day.

    A server that starts looks for the dead before it listens to its own events, and may miss that a run crashed.
    """
    crashed = client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=FLOWS)),
        flow_run_filter=FlowRunFilter(
            state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CRASHED])),
            end_time=FlowRunFilterEndTime(after_=datetime.now(UTC) - timedelta(days=1)),
        ),
    )
    resumed = [run for run in crashed if run.deployment_id is not None and 1 <= run.run_count <= most]
    for run in resumed:
        client.set_flow_run_state(run.id, AwaitingRetry(message=_RESUMED))
    return {f"flow run {run.name}": "resumed" for run in resumed}


def remove_automations() -> dict[str, Change]:
    """Delete all that `set_automations` made, the webhook's address too. Raises Refused."""
    require_api("nothing was changed")
    with get_client(sync_client=True) as client:
        changes = _delete(client, _ours(client))
        with suppress(ObjectNotFound):
            client.delete_block_document(client.read_block_document_by_name(_BLOCK, "webhook").id)
        return changes


def _automations(client: SyncPrefectClient, wanted: Wanted) -> Iterator[AutomationCore]:
    yield _dead(wanted.heartbeat_within)
    if wanted.max_resumes:
        yield _resume(wanted.max_resumes)
    if wanted.webhook is not None:
        block = _webhook(wanted.webhook)
        yield _bad_end(block)
        nightly = FlowFilter(name=FlowFilterName(any_=[NIGHTLY]))
        for deployment in client.read_deployments(flow_filter=nightly):
            if deployment.schedules:  # else nobody expects it
                yield _missed(f"{NIGHTLY}/{deployment.name}", deployment.id, wanted.missed_after, block)


def _dead(within: float) -> AutomationCore:
    """Any sign of life counts, states with names of ours too; a run that has ended is never marked."""
    return AutomationCore(
        name=f"{PREFIX}no heartbeat",
        description="A flow run that gives no sign of life is marked Crashed, and its slot is free.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            after={"prefect.flow-run.heartbeat", "prefect.flow-run.Pending", "prefect.flow-run.Running"},
            expect={"prefect.flow-run.*"},
            match=_RUN,
            match_related=_OUR_FLOW,
            for_each={"prefect.resource.id"},
            within=timedelta(seconds=within),
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.CRASHED,
                message=f"No heartbeat for {within:.0f} s: its process is taken for dead.",
            )
        ],
    )


def _resume(most: int) -> AutomationCore:
    """The same flow run, with its parameters and scheduled start. A run that never ran (count 0) is left alone: it
    would crash at once, again and again, without being counted."""
    return AutomationCore(
        name=f"{PREFIX}resume after a crash",
        description=f"A flow run that crashed is scheduled again, after at most {most} of its starts.",
        trigger=EventTrigger(
            expect={"prefect.flow-run.Crashed"},
            match={**_RUN, "prefect.run-count": [str(count) for count in range(1, most + 1)]},
            match_related=[_OUR_FLOW, _DEPLOYED],
            posture=Posture.Reactive,
        ),
        actions=[
            ChangeFlowRunState(
                state=StateType.SCHEDULED,
                name="AwaitingRetry",
                message=_RESUMED,
            )
        ],
    )


def _bad_end(block: UUID) -> AutomationCore:
    return AutomationCore(
        name=f"{PREFIX}tell of failures",
        description="A flow run that ended as Failed, Partial, Refused or Crashed calls the webhook.",
        trigger=EventTrigger(
            expect=_BAD_ENDS,
            match=_RUN,
            match_related=_OUR_FLOW,
            posture=Posture.Reactive,
        ),
        actions=[CallWebhook(block_document_id=block, payload=_ENDED)],
    )


def _missed(deployment: str, identity: UUID, after: float, block: UUID) -> AutomationCore:
    """One for each deployment, because only then the wait begins before its first run."""
    text = f"No run of {deployment} has completed for {after / 3600:g} h."
    return AutomationCore(
        name=f"{PREFIX}tell of a missed night of {deployment}",
        description=f"{text} That calls the webhook.",
        trigger=EventTrigger(
            posture=Posture.Proactive,
            expect={"prefect.flow-run.Completed"},
            match=_RUN,
            match_related={"prefect.resource.id": f"prefect.deployment.{identity}"},
            within=timedelta(seconds=after),
        ),
        actions=[
            CallWebhook(block_document_id=block, payload=f'{{"text": "{text}", "event": "batchjobs.night.missed"}}')
        ],
    )


def _webhook(url: str) -> UUID:
    block = Webhook(url=SecretStr(url), headers={"Content-Type": "application/json"})
    identity = block.save(_BLOCK, overwrite=True)
    assert isinstance(identity, UUID)  # not a coroutine: no event loop runs here
    return identity


def _ours(client: SyncPrefectClient) -> dict[str, Automation]:
    found, page = dict[str, Automation](), 100
    for offset in range(0, 10_000, page):
        automations = client.read_automations(sort=AutomationSort.NAME_ASC, limit=page, offset=offset)
        found |= {automation.name: automation for automation in automations if automation.name.startswith(PREFIX)}
        if len(automations) < page:
            break
    return found


def _set(client: SyncPrefectClient, wanted: AutomationCore, found: Automation | None) -> Change:
    if found is None:
        client.create_automation(wanted)
        return "created"
    if (found.enabled, found.trigger, found.actions) == (wanted.enabled, wanted.trigger, wanted.actions):
        return "unchanged"
    known = wanted.model_dump(exclude={"owner_resource"})  # which the server does not take in a change
    client.update_automation(found.id, AutomationCore(**known))
    return "changed"


def _delete(client: SyncPrefectClient, automations: dict[str, Automation]) -> dict[str, Change]:
    for automation in automations.values():
        client.delete_automation(automation.id)
    return dict.fromkeys(automations, "removed")
