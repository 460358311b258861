"""RFC 3161: ask a time-stamping service to sign a hash and the time, and check what it signed.

    token = request_token(url, digest, certificates)        # one POST; TimestampError says what is wrong with the answer
    signed_at = check_token(token, digest, certificates)    # later, without the network

The answer is not trusted: it must be granted, be about this digest and this request, and carry the signature of a certificate
from the file of the settings, or of one that such a certificate issued for time-stamping. Only what RFC 3161 and RFC 5652 need of
ASN.1 is read here, and a length that leads outside its value is an error.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

SHA256_OID = bytes.fromhex("0609608648016503040201")
SIGNED_DATA_OID = bytes.fromhex("06092a864886f70d010702")
TST_INFO_OID = bytes.fromhex("060b2a864886f70d0109100104")
MESSAGE_DIGEST_OID = bytes.fromhex("06092a864886f70d010904")
DIGESTS: dict[bytes, type[hashes.HashAlgorithm]] = {
    SHA256_OID: hashes.SHA256, bytes.fromhex("0609608648016503040202"): hashes.SHA384,
    bytes.fromhex("0609608648016503040203"): hashes.SHA512,
}  # fmt: skip
INTEGER, OCTETS, SEQUENCE, SET = 0x02, 0x04, 0x30, 0x31
MOST_BYTES = 2**16
WAIT_S = 10.0
UNREADABLE = (
    ValueError, TypeError, x509.InvalidVersion, x509.ExtensionNotFound, x509.DuplicateExtension, UnsupportedAlgorithm,
)  # fmt: skip


class TimestampError(Exception):
    """What is wrong with an answer or a token, in words."""


@dataclass(frozen=True)
class Element:
    """One value of ASN.1: its tag, its content, and both as they were sent."""

    tag: int
    content: bytes
    whole: bytes

    def children(self) -> list["Element"]:
        return _elements(self.content)

    def number(self) -> int:
        return int.from_bytes(self.content, "big", signed=True)


def request_token(url: str, digest: bytes, certificates: Sequence[x509.Certificate]) -> bytes:
    """The service's token for a SHA-256 digest, checked."""
    nonce = secrets.randbits(63)
    imprint = _wrap(SEQUENCE, _wrap(SEQUENCE, SHA256_OID + b"\x05\x00") + _wrap(OCTETS, digest))
    query = _wrap(SEQUENCE, _integer(1) + imprint + _integer(nonce) + b"\x01\x01\xff")
    token = _granted(_post(url, query))
    check_token(token, digest, certificates, nonce=nonce)
    return token


def check_token(token: bytes, digest: bytes, certificates: Sequence[x509.Certificate], *, nonce: int | None = None) -> datetime:
    """When the service signed this digest; TimestampError if it did not."""
    signed = _signed_data(token)
    content = _path(signed[2], 1, 0).content  # the TSTInfo that is signed
    info = _one(content).children()
    if len(info) < 5 or _path(info[2], 1).content != digest:
        raise TimestampError("it is about another hash")
    if nonce is not None and nonce not in [part.number() for part in info[5:] if part.tag == INTEGER]:
        raise TimestampError("it answers another request")
    _check_signature(signed, content, certificates)
    try:
        return datetime.strptime(info[4].content.decode()[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise TimestampError("its time cannot be read") from None


def _signed_data(token: bytes) -> list[Element]:
    """version, digest algorithms, content, certificates, …, signers"""
    outer = _one(token)
    if _path(outer, 0).whole != SIGNED_DATA_OID:
        raise TimestampError("it is not a signed token")
    signed = _path(outer, 1, 0).children()
    if len(signed) < 4 or _path(signed[2], 0).whole != TST_INFO_OID:
        raise TimestampError("it is not a timestamp")
    return signed


def _check_signature(signed: list[Element], content: bytes, certificates: Sequence[x509.Certificate]) -> None:
    """One signer, whose certificate is trusted, has signed attributes with the digest of the content."""
    if signed[-1].tag != SET or len(signed[-1].children()) != 1:
        raise TimestampError("it does not have exactly one signature")
    parts = signed[-1].children()[0].children()
    attributes = next((part for part in parts if part.tag == 0xA0), None)
    position = parts.index(attributes) if attributes is not None else 0
    if attributes is None or position < 3 or len(parts) < position + 3:
        raise TimestampError("its signature has no signed attributes")
    digest = DIGESTS.get(_path(parts[position - 1], 0).whole)
    if digest is None:
        raise TimestampError("it uses a hash other than SHA-256, SHA-384 or SHA-512")
    stated = [_path(part, 1, 0).content for part in attributes.children() if _path(part, 0).whole == MESSAGE_DIGEST_OID]
    if stated != [_digest_of(content, digest())]:
        raise TimestampError("its content was changed")
    message = bytes([SET]) + attributes.whole[1:]  # RFC 5652, 5.4: signed as a SET
    signature = parts[position + 2].content
    if not any(_verifies(signer, signature, message, digest()) for signer in _signers(signed, certificates)):
        raise TimestampError("it is not signed by a trusted certificate")


def _digest_of(content: bytes, algorithm: hashes.HashAlgorithm) -> bytes:
    digest = hashes.Hash(algorithm)
    digest.update(content)
    return digest.finalize()


def _signers(signed: list[Element], trusted: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """The trusted certificates, and those in the token that one of them issued for time-stamping."""
    signers = list(trusted)
    for part in (inner for outer in signed[3:-1] if outer.tag == 0xA0 for inner in outer.children()):
        try:
            certificate = x509.load_der_x509_certificate(part.whole)
            purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        except UNREADABLE:
            continue
        if ExtendedKeyUsageOID.TIME_STAMPING in purposes and any(_issued(certificate, issuer) for issuer in trusted):
            signers.append(certificate)
    return signers


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
        return True
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False


def _verifies(certificate: x509.Certificate, signature: bytes, message: bytes, digest: hashes.HashAlgorithm) -> bool:
    key = certificate.public_key()
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, message, padding.PKCS1v15(), digest)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, message, ec.ECDSA(digest))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _post(url: str, query: bytes) -> bytes:
    """The service's answer; redirects are not followed, and it may be 64 KiB long and take 10 s."""
    headers = {"Content-Type": "application/timestamp-query", "Accept-Encoding": "identity"}
    body, deadline = b"", time.monotonic() + WAIT_S
    try:
        with httpx.stream("POST", url, content=query, headers=headers, timeout=WAIT_S, follow_redirects=False) as response:
            kind = response.headers.get("content-type", "").split(";")[0].strip()
            if response.status_code != 200 or kind != "application/timestamp-reply":
                raise TimestampError(f"the service answered {response.status_code} and no timestamp")
            for part in response.iter_raw():
                body += part
                if len(body) > MOST_BYTES or time.monotonic() > deadline:
                    raise TimestampError("the answer is too long or too slow")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise TimestampError(f"the service cannot be reached ({type(error).__name__})") from None
    return body


def _granted(answer: bytes) -> bytes:
    parts = _one(answer).children()
    if not parts or _path(parts[0], 0).number() not in (0, 1) or len(parts) < 2:
        raise TimestampError("the service refused")
    return parts[1].whole


def _one(data: bytes) -> Element:
    elements = _elements(data)
    if len(elements) != 1:
        raise TimestampError("it cannot be read")
    return elements[0]


def _path(element: Element, *indexes: int) -> Element:
    for index in indexes:
        children = element.children()
        if index >= len(children):
            raise TimestampError("it cannot be read")
        element = children[index]
    return element


def _elements(data: bytes) -> list[Element]:
    elements, position = [], 0
    while position < len(data):
        start, length, position = position, data[position + 1] if position + 1 < len(data) else -1, position + 2
        if length >= 0x80:
            count = length & 0x7F
            length, position = int.from_bytes(data[position : position + count], "big") if 0 < count < 5 else -1, position + count
        if length < 0 or position + length > len(data):
            raise TimestampError("it cannot be read")
        elements.append(Element(data[start], data[position : position + length], data[start : position + length]))
        position += length
    return elements


def _wrap(tag: int, content: bytes) -> bytes:
    assert len(content) < 0x80, "requests are short"
    return bytes([tag, len(content)]) + content


def _integer(value: int) -> bytes:
    return _wrap(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))
