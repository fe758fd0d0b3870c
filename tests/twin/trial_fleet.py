"""A fleet on which a version is on trial: one cluster, a few large jobs, one train, one component, failures.

Made coarser than life so that hundreds of seeds are affordable: 1,024 hosts instead of 3,072; hosts fail
four times as often (26 per 1,000 host-days), so that evidence comes in a quarter of the time; a stop takes 64 hosts,
and the train goes round in a day. Nothing else happens: failures and the train's operations are the only events.
"""

from trainmaster.core.base.ids import ClusterId, ComponentName, HostId, KindName, TrainName
from trainmaster.core.base.time import HOUR, MINUTE, Duration, seconds
from trainmaster.core.fleet.inventory import ClusterBlock, FleetSpec, HostBlock, lay_out
from trainmaster.core.maintenance.capacity import Book, Buffers, CapacityPolicy, Share
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Disturbs, Kind, StepSpec
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.twin.scenario import DAY, Failures, JobClass, Release, Scenario, spread

HOSTS = 1024
DRIVER = ComponentName("driver")


def fleet(hosts: int = HOSTS, rack: int = 2, pod_racks: int = 64) -> FleetSpec:
    names = tuple(HostId(f"h{number:04}") for number in range(hosts))
    block = HostBlock(hosts=names, platform="grand-teton", hosts_per_rack=rack, racks_per_pod=pod_racks)
    return lay_out("trial", (ClusterBlock(name="c", fabric="roce", blocks=(block,)),))


def component(name: str, disturbs: Disturbs) -> Component:
    step = StepSpec(name="install", command=("install", "{component}", "{version}"), deadline=Duration(20 * MINUTE))
    return Component(
        name=ComponentName(name),
        disturbs=disturbs,
        duration=spread(240, 480, 1200),
        steps=(step,),
        observe=("show", "{component}"),
    )


CATALOGUE = Catalogue(
    name="trial",
    components=(component("driver", "reboot"), component("nic", "drain")),
    kinds=(Kind(name=KindName("repair"), repairs=True, disturbs="drain", duration=spread(1800, 3600, 7200)),),
)


def scenario(seed: int, release: Release, days: float, hosts: int = HOSTS, jobs: int = 4) -> Scenario:
    gang = JobClass(
        name="large",
        count=jobs,
        hosts=hosts * 9 // 10 // jobs,
        work=spread(400 * 86400, 500 * 86400, 600 * 86400),
        launch=seconds(5),
        restore=Duration(2 * MINUTE),
    )
    buffers = Buffers(maintenance=Share(per_mille=100), failure=Share(per_mille=80))
    train = TrainWish(
        name=TrainName("main"), cluster=ClusterId("c"), domain_size=Share(hosts=64), cycle=Duration(24 * HOUR)
    )
    return Scenario(
        name="trial",
        fleet=fleet(hosts),
        catalogue=CATALOGUE,
        capacity=CapacityPolicy(books=(Book(name="c", cluster="c", buffers=buffers),)),
        seed=seed,
        duration=Duration(round(days * DAY)),
        jobs=(gang,),
        failures=Failures(per_thousand_host_days=26.0, reboot_share=0.9),
        trains=(train,),
        releases=(
            Release(component=ComponentName("nic"), version="2", after=Duration(18 * HOUR), via="target"),
            release,
        ),
    )
