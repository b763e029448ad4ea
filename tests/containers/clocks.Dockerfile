# headgate:0.2.0 with a wall clock that can be shifted (test_clocks.py).
FROM headgate:0.2.0 AS compiler
USER root
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY clocks.c /clocks.c
RUN gcc -O2 -Wall -Werror -shared -fPIC -o /clocks.so /clocks.c -ldl

FROM headgate:0.2.0
COPY --from=compiler /clocks.so /opt/clocks.so
