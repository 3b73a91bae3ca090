#!/bin/sh
# The store in a container of its own, since store = "embedded" would end with each launch's container. Run it once.
docker network create pollconsumer
exec docker run --detach --name pollconsumer-store --network pollconsumer --restart unless-stopped \
  --volume pollconsumer-store:/data \
  valkey/valkey:8 valkey-server --appendonly yes --maxmemory-policy noeviction
