# The service as one image: `serve`, `worker` and every operator command. Backups are made by the programs of PostgreSQL
# 17, which read servers of 14 to 17.
#   docker build -t booking .
#   docker run --read-only --tmpfs /tmp -e BOOKING_DATABASE_URL=postgresql://… -e BOOKING_SECRET_KEY=… -p 8000:8000 booking
FROM python:3.13-slim-trixie AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY locks/test.txt locks/
COPY webhook_verify webhook_verify
COPY booking_core booking_core
COPY booking_sdk booking_sdk
COPY booking_server booking_server
COPY booking_cli booking_cli
# The versions of the largest lock for what the service needs; it also holds what tests need.
RUN python -m venv /opt/booking \
    && sed -E -e '/^ +--hash/d' -e 's/ *\\$//' locks/test.txt > constraints.txt \
    && /opt/booking/bin/pip install --quiet --constraint constraints.txt \
       ./webhook_verify './booking_core[storage]' ./booking_sdk './booking_server[otel,postgres,redis]' './booking_cli[operator]' \
    && /opt/booking/bin/pip uninstall --quiet --yes pip
# The programs without the wrappers of their package, which need Perl.
WORKDIR /client
RUN apt-get update --quiet=2 \
    && apt-get download --quiet=2 postgresql-client-17 \
    && dpkg-deb --extract postgresql-client-17_*.deb .

FROM python:3.13-slim-trixie
# hadolint ignore=DL3008
RUN apt-get update --quiet=2 \
    && apt-get install --quiet=2 --yes --no-install-recommends libpq5 libreadline8t64 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --home-dir /nonexistent booking
COPY --from=build /client/usr/lib/postgresql/17/bin/pg_dump /client/usr/lib/postgresql/17/bin/pg_restore \
     /client/usr/lib/postgresql/17/bin/psql /usr/lib/postgresql/17/bin/
COPY --from=build /opt/booking /opt/booking
ENV PATH=/opt/booking/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 BOOKING_LOG_FORMAT=json
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["booking"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000", "--no-worker"]
