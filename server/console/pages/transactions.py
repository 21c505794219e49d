"""Open transactions, oldest first, and those given up; a decision on one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.pb.v1 import transactions_pb2 as pb
from server.console.addresses import address
from server.console.page import Page
from server.console.visit import PAGE_ROWS
from store.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from server.console.visit import Visit


async def _list(visit: Visit) -> web.StreamResponse:
    group, given_up, after = visit.text("group"), visit.text("given_up"), visit.token("after")
    found = await visit.ask(
        "ListTransactions",
        pb.ListTransactionsRequest(
            group=group, given_up=bool(given_up), page_size=PAGE_ROWS, page_token=after
        ),
        pb.ListTransactionsResponse,
    )
    return visit.html(
        "transactions.html",
        group=group,
        given_up=given_up,
        found=found,
        is_first=not after,
        following=found.next_page_token
        and address("/transactions", group=group, given_up=given_up, after=found.next_page_token),
    )


async def _decide(visit: Visit, form: Mapping[str, str]) -> str:
    decision = form.get("decision", "")
    if decision not in ("commit", "rollback"):
        raise InvalidArgumentError("decision", f"{decision[:40]!r} is not commit or rollback")
    request = pb.DecideTransactionRequest(
        transaction_id=form.get("id", ""), commit=decision == "commit"
    )
    await visit.ask("DecideTransaction", request, pb.DecideTransactionResponse)
    shown = {name: form.get(name, "") for name in ("group", "given_up")}
    if request.commit:
        return address("/transactions", **shown, notice="committed")
    return address("/transactions", **shown, notice="rolledBack")


PAGE = Page(
    "transactions",
    "/transactions",
    {"/transactions": _list},
    {"/transactions/decide": _decide},
    needs=("ListTransactions",),
    for_administrators=True,
)
