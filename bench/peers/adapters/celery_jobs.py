"""Celery: a beat entry for each fire, a gevent worker as its guide advises for I/O, Redis as the broker.

acks_late and a visibility timeout of 30 s (default: 1 h), so that what a killed worker held comes back while the
benchmark waits. Beat keeps its entries in a file beside it.
"""

import urllib3
from celery import Celery
from celery.schedules import crontab
from work import AT_ONCE, BODY, DUE_AT, JOBS, STORE, URL, headers_of

app = Celery("celery_jobs", broker=STORE)
app.conf.update(
    timezone="UTC",
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 30},
    beat_schedule={
        f"job-{number}": {
            "task": "call",
            "schedule": crontab(minute=DUE_AT.minute, hour=DUE_AT.hour),
            "args": (number,),
        }
        for number in range(JOBS)
    },
)
pool = urllib3.PoolManager(maxsize=AT_ONCE)


@app.task(name="call")
def call(number: int) -> None:
    answer = pool.request("POST", URL, body=BODY, headers=headers_of(number))
    if answer.status >= 400:
        raise RuntimeError(answer.status)
