# A server for one bundle, on the CPU, without root:
#   docker build -t loger .
#   docker run --rm -p 8000:8000 -v "$PWD/my-shop.bundle:/bundle:ro" loger
# Any other command works as well: docker run --rm -v "$PWD:/data" loger fit /data/my-shop -o /data/my-shop.bundle
FROM python:3.13-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
ENV PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/home/loger/.cache/numba
# The CPU build of PyTorch first: the default one carries several GB of CUDA.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "torch>=2.5,<2.14"
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)[serve]" \
    && rm -r /wheels \
    && useradd --create-home --uid 10001 loger
USER 10001
WORKDIR /home/loger
# For this machine's processor; on another kind of it they are compiled again.
RUN loger compile
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/v1/health', timeout=4)"]
# With LOGER_API_KEY in the environment, or with --no-auth in place of a key.
ENTRYPOINT ["loger"]
CMD ["serve", "/bundle", "--host", "0.0.0.0"]
