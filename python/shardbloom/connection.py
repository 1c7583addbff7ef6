"""One way to connect, for every tool: the same options, URLs, messages and exit codes.

    parser = argparse.ArgumentParser(...)
    add_options(parser)
    options = parser.parse_args()
    client = address_from(options).client()

A tool's main() is run by run(), which turns every error into one line on stderr and the exit code.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import sys
from typing import Any, Callable, List, NoReturn, Optional, Union
from urllib.parse import parse_qsl, unquote, urlsplit

from shardbloom import progress

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    sys.exit(
        "shardbloom: the Python module redis is missing (Debian: apt-get install python3-redis)"
    )

FOUND, ERROR, INTERRUPTED = 1, 2, 130  # exit codes; 0: all is well

Key = Union[str, bytes]


class Failure(Exception):
    """What the user is told, in one line. The tool ends with the exit code 2."""


# ---- where a server is ----


@dataclasses.dataclass(frozen=True)
class Address:
    """A server, and how to log in: what a URL or the options of a tool say."""

    host: str = "127.0.0.1"
    port: int = 6379
    path: Optional[str] = None  # of a unix socket; host and port mean nothing then
    db: Optional[int] = None  # None: not said
    user: Optional[str] = None
    password: Optional[str] = dataclasses.field(default=None, repr=False)
    tls: bool = False
    cacert: Optional[str] = None
    cert: Optional[str] = None
    key: Optional[str] = None
    insecure: bool = False

    @classmethod
    def from_url(cls, url: str) -> Address:
        """redis://[[user]:password@]host[:port][/db], rediss:// for TLS,
        unix://[[user]:password@]/path[?db=n].

        As in redis-cli, a word before the @ without a colon is the password. Raises Failure.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise Failure(f"not the URL of a server: {without_password(url)} ({error})") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise Failure(
                f"not the URL of a server: {without_password(url)} (redis://, rediss:// or unix://)"
            )
        login, _, place = parts.netloc.rpartition("@")
        user, _, password = login.rpartition(":")
        query = dict(parse_qsl(parts.query))
        db = query.pop("db", None)
        if query:
            raise Failure(f"unknown words in the URL of a server: {', '.join(query)}")
        address = cls(
            user=unquote(user) or None,
            password=unquote(password) or None,
            tls=parts.scheme == "rediss",
        )
        if parts.scheme == "unix":
            path = unquote(place + parts.path)
            if not path:
                raise Failure("unix:// needs the path of a socket: unix:///run/redis/redis.sock")
            return dataclasses.replace(address, path=path, db=database_number(db))
        path_db = parts.path.strip("/")
        return dataclasses.replace(
            address,
            host=unquote(parts.hostname or cls.host),
            port=port or cls.port,
            db=database_number(path_db or db),
        )

    def __str__(self) -> str:
        """Where it is, without the password."""
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, host: str, port: int) -> Address:
        """Another node of the same cluster: the same login, another place."""
        return dataclasses.replace(self, host=host, port=port, path=None)

    def client(
        self, db: Optional[int] = None, timeout: float = 60, **options: Any
    ) -> redis.Redis[bytes]:
        """A client of redis-py. It connects when it is first used.

        It never sends a command a second time by itself, as redis-py 6 and newer would: an item
        that was added by a command whose reply got lost would then look as if it had been there
        before.
        """
        options.setdefault("socket_timeout", timeout)
        options.setdefault("socket_connect_timeout", min(timeout, 10))
        options.setdefault("retry", Retry(NoBackoff(), 0))
        options.update(
            db=self.db or 0 if db is None else db, username=self.user, password=self.password
        )
        if self.path:
            return redis.Redis(unix_socket_path=self.path, **options)
        if self.tls:
            options.update(
                ssl=True,
                ssl_ca_certs=self.cacert,
                ssl_certfile=self.cert,
                ssl_keyfile=self.key,
                ssl_cert_reqs="none" if self.insecure else "required",
                ssl_check_hostname=not self.insecure,
            )
        return redis.Redis(host=self.host, port=self.port, socket_keepalive=True, **options)


@dataclasses.dataclass(frozen=True)
class ClientAddress(Address):
    """Where a client of redis-py is connected to. Other nodes are reached with the same options."""

    pool: Any = dataclasses.field(default=None, repr=False)
    elsewhere: bool = False  # not the client's own server

    @classmethod
    def of(cls, client: Any) -> ClientAddress:
        pool = client.connection_pool
        given = pool.connection_kwargs
        return cls(
            host=given.get("host") or cls.host,
            port=int(given.get("port") or cls.port),
            path=given.get("path"),
            db=given.get("db"),
            pool=pool,
        )

    def at(self, host: str, port: int) -> Address:
        return dataclasses.replace(self, host=host, port=port, path=None, elsewhere=True)

    def client(
        self, db: Optional[int] = None, timeout: float = 60, **options: Any
    ) -> redis.Redis[bytes]:
        if not self.elsewhere:
            return redis.Redis(connection_pool=self.pool)
        options = {**self.pool.connection_kwargs, **options, "host": self.host, "port": self.port}
        kind = self.pool.connection_class
        if options.pop("path", None) is not None:
            kind = redis.Connection
        return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=kind, **options))


def database_number(text: Optional[str]) -> Optional[int]:
    """The database of a URL. Raises Failure if it is no number."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise Failure(f"not the number of a database: {text}")
    return int(text)


def without_password(url: str) -> str:
    """A URL as it may be shown; also one that is wrong."""
    scheme, mark, rest = url.partition("://")
    return scheme + mark + (rest.rpartition("@")[2] if mark else "")


# ---- the options of a tool ----


def add_options(parser: argparse.ArgumentParser, db: bool = True) -> None:
    """Adds the options that say which server is meant. The words are those of redis-cli, but for
    -h, which shows the help.
    """
    group = parser.add_argument_group("server", "As in redis-cli, except that -h shows this help.")
    group.add_argument(
        "-u",
        "--url",
        metavar="URL",
        help=(
            "redis://user:password@host:port/db, rediss:// for TLS, unix:///path?db=n for a socket"
        ),
    )
    group.add_argument("-H", "--host", help=f"host name or address (default: {Address.host})")
    group.add_argument("-p", "--port", type=int, help=f"port (default: {Address.port})")
    group.add_argument(
        "-a",
        "--password",
        help="password; the environment variable REDISCLI_AUTH is safer",
    )
    group.add_argument("--user", metavar="NAME", help="log in as this user")
    if db:
        group.add_argument("-n", "--db", type=int, metavar="N", help="number of the database")
    group.add_argument("--tls", action="store_true", help="use TLS")
    group.add_argument(
        "--cacert", metavar="FILE", help="certificates to trust (default: the system's)"
    )
    group.add_argument("--cert", metavar="FILE", help="client certificate")
    group.add_argument("--key", dest="cert_key", metavar="FILE", help="private key of --cert")
    group.add_argument("--insecure", action="store_true", help="accept any certificate")


def address_from(options: argparse.Namespace) -> Address:
    """The server that the options name. What is said apart from the URL comes before what the URL
    says.
    """
    if options.url is not None and (options.host is not None or options.port is not None):
        raise Failure("give either a URL or --host and --port")
    address = Address() if options.url is None else Address.from_url(options.url)
    if options.port is not None and not 0 < options.port < 65536:
        raise Failure(f"not a port: {options.port}")
    if (getattr(options, "db", None) or 0) < 0:
        raise Failure(f"not the number of a database: {options.db}")
    given = {
        name: getattr(options, name, None) for name in ("host", "port", "db", "user", "password")
    }
    address = dataclasses.replace(
        address, **{name: value for name, value in given.items() if value is not None}
    )
    if address.password is None:
        address = dataclasses.replace(address, password=os.environ.get("REDISCLI_AUTH") or None)
    return with_tls(address, options)


def other_address(url: str, options: argparse.Namespace) -> Address:
    """A second server, given as a URL alone; certificates are those of the options. REDISCLI_AUTH
    is not sent to it.
    """
    address = Address.from_url(url)
    return with_tls(address, options) if address.tls else address


def with_tls(address: Address, options: argparse.Namespace) -> Address:
    """The address with what the options say about TLS. Checks what would fail later with an obscure
    message.
    """
    tls = address.tls or options.tls
    if tls and address.path:
        raise Failure("TLS is not for unix sockets")
    other_tls = (getattr(options, "to", None) or "").startswith(
        "rediss://"
    )  # they may be for that server
    if (
        not tls
        and not other_tls
        and (options.cacert or options.cert or options.cert_key or options.insecure)
    ):
        raise Failure(
            "--cacert, --cert, --key and --insecure are for TLS: give --tls or a rediss:// URL"
        )
    files: List[Optional[str]] = [options.cacert, options.cert, options.cert_key]
    for name in files:
        try:
            if name is not None:
                with open(name, "rb"):
                    pass
        except OSError as error:
            raise Failure(f"{name}: {error.strerror}") from None
    return dataclasses.replace(
        address,
        tls=tls,
        cacert=options.cacert,
        cert=options.cert,
        key=options.cert_key,
        insecure=options.insecure,
    )


# ---- what went wrong, in words ----


def shown(name: Key) -> str:
    """A name as it may go to a terminal: any bytes can be one."""
    text = name.decode(errors="backslashreplace") if isinstance(name, bytes) else name
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def explain(error: BaseException, address: object = None, key: Optional[Key] = None) -> str:
    """An error in the words that all tools use. The address and the key are what the failed command
    was about.
    """
    where = str(address or "the server")
    text = str(error)
    if isinstance(error, Failure):
        return text
    if isinstance(error, redis.AuthenticationError) or text.startswith(("NOAUTH", "WRONGPASS")):
        # In RESP3 it is HELLO that is refused.
        if "required" in text or "NOAUTH" in text or "HELLO must be called" in text:
            return f"{where} requires a password: set REDISCLI_AUTH, or use -a or -u"
        return f"{where} does not accept the user or the password"
    if isinstance(error, redis.exceptions.NoPermissionError) or text.startswith("NOPERM"):
        return f"{where} does not permit it: {text.replace('NOPERM ', '', 1)}"
    if isinstance(error, redis.BusyLoadingError):
        return f"{where} is still loading its data; try again later"
    if isinstance(error, redis.TimeoutError):
        return f"{where} does not answer in time"
    if isinstance(error, redis.ConnectionError):
        return f"no connection to {where}: {reason(error)}"
    if isinstance(error, redis.ResponseError):
        name = "the key" if key is None else shown(key)
        if "unknown command" in text:
            return f"{where} has no shardbloom module, or an old one"
        if "WRONGTYPE" in text:
            return f"{name} is not a filter"
        if text == "not found":
            return f"there is no filter {name}"
        return text if key is None else f"{name}: {text}"
    if isinstance(error, OSError) and error.filename:
        return f"{shown(error.filename)}: {error.strerror}"
    return text or type(error).__name__


def reason(error: BaseException) -> str:
    """What the operating system or the TLS library said, without redis-py's words around it."""
    cause: Optional[BaseException] = error
    while cause is not None:
        verification = getattr(cause, "verify_message", None)
        if verification:
            return f"its certificate is not accepted: {verification}"
        if isinstance(cause, OSError):
            return cause.strerror or str(cause)
        cause = cause.__cause__ or cause.__context__
    return str(error).rstrip(".")


# ---- running a tool ----


def run(name: str, main: Callable[[], int]) -> NoReturn:
    """Runs a tool and ends the process with its exit code; no traceback for anything that a user
    can cause.

    0: all is well; 1: something was found (the tool says what); 2: an error; 130: Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not every locale can show every name
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        progress.end()
        code = INTERRUPTED
    except BrokenPipeError:
        # Python would try to write the rest when it ends, and complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        progress.end()
        progress.say(f"{name}: the output was closed before everything was written")
        code = ERROR
    except (Failure, redis.RedisError, OSError) as error:
        progress.end()
        progress.say(
            f"{name}:"
            f" {explain(error, getattr(error, 'address', None), getattr(error, 'key', None))}"
        )
        code = ERROR
    sys.exit(code)
