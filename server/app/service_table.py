"""Which services the server has, and at which of its addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from kvcq_client.pb.v1 import (
    access_pb2,
    jobs_pb2,
    kvcq_pb2,
    lite_topics_pb2,
    migration_pb2,
    shared_groups_pb2,
    timers_pb2,
    transactions_pb2,
)
from server.app.listening import rpc_options
from server.edge import STREAMS, request_limit
from server.fronts import FrontMethod, Fronts
from server.rocketmq import SERVICE as ROCKETMQ
from server.rocketmq import RocketmqService, refuse
from server.services import (
    AccessService,
    AdminService,
    CallService,
    GroupService,
    HealthService,
    JobService,
    LiteTopicService,
    MessageService,
    MigrationService,
    SharedGroupService,
    TimerService,
    TopicService,
    TransactionService,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from server.access import ReloadedTls
    from server.app.traces import Tracing
    from server.config import ServerConfig
    from server.edge import Edge

Reflection: type = reflection.aio.ReflectionServicer  # type: ignore[attr-defined]
#: Each service by the class that answers it.
SERVED = {
    MessageService: kvcq_pb2.DESCRIPTOR.services_by_name["MessageService"],
    CallService: kvcq_pb2.DESCRIPTOR.services_by_name["CallService"],
    TopicService: kvcq_pb2.DESCRIPTOR.services_by_name["TopicService"],
    GroupService: kvcq_pb2.DESCRIPTOR.services_by_name["GroupService"],
    SharedGroupService: shared_groups_pb2.DESCRIPTOR.services_by_name["SharedGroupService"],
    TimerService: timers_pb2.DESCRIPTOR.services_by_name["TimerService"],
    TransactionService: transactions_pb2.DESCRIPTOR.services_by_name["TransactionService"],
    LiteTopicService: lite_topics_pb2.DESCRIPTOR.services_by_name["LiteTopicService"],
    AdminService: kvcq_pb2.DESCRIPTOR.services_by_name["AdminService"],
    MigrationService: migration_pb2.DESCRIPTOR.services_by_name["MigrationService"],
    JobService: jobs_pb2.DESCRIPTOR.services_by_name["JobService"],
    AccessService: access_pb2.DESCRIPTOR.services_by_name["AccessService"],
    RocketmqService: ROCKETMQ,
    HealthService: health_pb2.DESCRIPTOR.services_by_name["Health"],
    Reflection: reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
}
#: Services that `admin_port` moves to an address of their own.
_ADMINISTRATION = (AdminService, MigrationService, JobService, AccessService)
#: Services of the API.
SERVICES = tuple(
    descriptor.full_name
    for kind, descriptor in SERVED.items()
    if kind not in (HealthService, Reflection)
)


def add_services(
    edge: Edge,
    rpc: grpc.aio.Server | Fronts,
    apart: grpc.aio.Server | None,
    servicer_of: Callable[[type], Callable[[], object]],
    elsewhere: Callable[[], object],
) -> None:
    """Add each service to `rpc`, or, for administration, to `apart` if there is one.

    `elsewhere` raises the error that says where administration is served.
    """
    for kind, descriptor in SERVED.items():
        if kind is RocketmqService:
            given = servicer_of(kind)
            edge.add(rpc, descriptor, kind, given, shares_stream=False, refuse=refuse)
        elif apart is None:
            edge.add(rpc, descriptor, kind, servicer_of(kind))
        elif kind in _ADMINISTRATION:
            edge.add(rpc, descriptor, kind, elsewhere)
            edge.add(apart, descriptor, kind, servicer_of(kind), shares_stream=False)
        else:
            edge.add(rpc, descriptor, kind, servicer_of(kind))
            if kind in (HealthService, Reflection):
                edge.add(apart, descriptor, kind, servicer_of(kind))


def fronts_of(
    config: ServerConfig, tls: ReloadedTls | None, tracing: Tracing | None
) -> Fronts | None:
    """The fronts; None if this process serves gRPC itself."""
    if config.workers == 1:
        return None
    methods = [
        FrontMethod(
            f"/{service.full_name}/{method.name}",
            method.client_streaming,
            method.server_streaming,
            # A stream may be held back before its first request is taken.
            limit.waits_to_be_read or limit.kind in STREAMS,
            limit.request_bytes,
        )
        for service in SERVED.values()
        for method in service.methods
        for limit in [request_limit(method, config)]
    ]
    interceptor = None if tracing is None else tracing.interceptor()
    return Fronts(config.workers, rpc_options(config), methods, tls, interceptor)
