"""TLS for connections, and the errors after which it can never work."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.store.client.address import CERTIFICATE, TLS_FILES, Address

NO_TLS = "WRONG_VERSION_NUMBER"
PROBED_WITHIN = 0.5
"""Seconds within which a port that is asked only to explain a mistake must answer."""
_REQUIREMENTS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_EXPIRED, _NOT_YET_VALID, _OTHER_NAME, _OTHER_ADDRESS = 10, 9, 62, 64
_FIXES = {
    _EXPIRED: "renew the server's certificate",
    _NOT_YET_VALID: "set the clock of this machine, or of the one that made the certificate",
    _OTHER_NAME: "use a name that the certificate has, or give ssl_check_hostname=false",
    _OTHER_ADDRESS: "use a name that the certificate has, or give ssl_check_hostname=false",
}


def encrypted(opened: socket.socket, address: Address) -> socket.socket:
    """``opened``, with TLS by the options of the URL. Raises OSError if TLS fails; `tls_refusal` may explain why."""
    options = address.tls or {}
    context = ssl.create_default_context()
    requirement = _REQUIREMENTS[options.get(CERTIFICATE, "required")]
    named = options.get("ssl_check_hostname", "true").lower() not in ("0", "f", "false", "n", "no")
    context.check_hostname = named and requirement is not ssl.CERT_NONE
    context.verify_mode = requirement
    if "ssl_certfile" in options or "ssl_keyfile" in options:
        context.load_cert_chain(
            options.get("ssl_certfile", ""), options.get("ssl_keyfile"), options.get("ssl_password")
        )
    if "ssl_ca_certs" in options or "ssl_ca_path" in options:
        context.load_verify_locations(options.get("ssl_ca_certs"), options.get("ssl_ca_path"))
    if "ssl_ciphers" in options:
        context.set_ciphers(options["ssl_ciphers"])
    try:
        return context.wrap_socket(opened, server_hostname=address.host)
    except TimeoutError:  # a server that takes a handshake for a command waits for the rest
        if not _speaks_plainly(address):
            raise
        refusal = ssl.SSLError()
        refusal.reason = NO_TLS
        raise refusal from None


def tls_refusal(error: BaseException, options: Mapping[str, Any], *, established: bool) -> ConfigurationError | None:
    """The error to raise if ``error`` shows that TLS can never work with these ``options`` of the URL. None if it may
    work later. ``established``: the connection was open already, so only a certificate can be wrong."""
    failure: BaseException | None = error
    while failure is not None and not isinstance(failure, ssl.SSLError | FileNotFoundError | PermissionError):
        failure = failure.__cause__ or failure.__context__
    if isinstance(failure, ssl.SSLCertVerificationError):
        fix = _FIXES.get(failure.verify_code, "name the file of its CA's certificate: ssl_ca_certs=FILE")
        return _refused(failure.verify_message, fix)
    if isinstance(failure, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None  # the server hung up, as a server does that is starting
    if isinstance(failure, ssl.SSLError):
        about_certificate = "CERTIFICATE" in (failure.reason or "")
        return None if established and not about_certificate else _failed_handshake(options, failure)
    return None if failure is None or established else _unreadable(options, failure)


def _failed_handshake(options: Mapping[str, Any], failure: ssl.SSLError) -> ConfigurationError:
    reason = failure.reason or str(failure)
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return _refused(reason, "the server wants a certificate of ours: ssl_certfile=FILE, ssl_keyfile=FILE")
    if reason in (NO_TLS, "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return _refused(reason, "the port speaks no TLS: name one that does, or leave TLS out of the URL")
    return _refused(reason, f"check {', '.join(name for name in TLS_FILES if name in options) or 'ssl_ca_certs'}")


def speaks_tls(address: Address) -> bool:
    """Whether the port speaks TLS, after it hung up on a plain connection. False if it does not answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with address.open(PROBED_WITHIN) as opened, context.wrap_socket(opened, server_hostname=address.host):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it requires a certificate, or another version of TLS
    except OSError:
        return False


def _speaks_plainly(address: Address) -> bool:
    """Whether the port answers an unencrypted connection."""
    try:
        with address.open(PROBED_WITHIN) as opened:
            opened.sendall(b"PING\r\n")
            return opened.recv(1) in (b"+", b"-")
    except OSError:
        return False


def _unreadable(options: Mapping[str, Any], failure: BaseException) -> ConfigurationError:
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        return _refused("ssl_keyfile has no certificate", "name its file, too: ssl_certfile=FILE")
    for name in TLS_FILES:
        if name in options:
            try:
                with Path(options[name]).open("rb"):
                    pass
            except IsADirectoryError:
                continue
            except OSError as error:
                return _refused(error.strerror or str(error), f"{name}={options[name]} cannot be read")
    return _refused(str(failure), "check the files that the URL names")


def _refused(reason: str, fix: str) -> ConfigurationError:
    text = reason.lower().replace("_", " ") if reason.isupper() else reason.rstrip(".")
    return ConfigurationError("store: TLS", text, fix)
