"""A plugin of pytest: the fixtures of pottery's suite, which its package leaves out."""

import os

import pytest
from redis import Redis
from redis.asyncio import Redis as AIORedis


@pytest.fixture
def redis_url():
    return os.environ['SUITE_URL']


@pytest.fixture
def redis(redis_url):
    client = Redis.from_url(redis_url, socket_timeout=1)
    client.flushdb()
    yield client
    client.flushdb()


@pytest.fixture
async def aioredis(redis_url):
    client = AIORedis.from_url(redis_url, socket_timeout=1)
    await client.flushdb()
    yield client
    await client.flushdb()
    await client.aclose()
