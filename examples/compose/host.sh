#!/bin/sh
# Make or join the crew on this host, and start its agents: host.sh AGENT…
set -eu
git config --global user.name "$(hostname)"
git config --global user.email "$(hostname)@shop.example"
url="postgresql://liza@db/liza?crew=shop&sslmode=verify-full&sslrootcert=/certs/ca.crt"
[ -d shop ] || git clone -q git://remote/shop.git shop
cd shop
if [ ! -e .liza/board.toml ]; then
  if [ "${FIRST_HOST:-}" = yes ]; then
    liza board migrate "$url"
    liza init "A shop of many parts" --board "$url" --host "$(hostname)"
  else
    until liza join "$url" --host "$(hostname)"; do sleep 2; done # the first host has not made the crew yet
  fi
fi
exec liza up "$@"
