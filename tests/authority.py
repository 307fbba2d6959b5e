"""A certificate authority of the tests' own, made with openssl."""

import subprocess


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """Signs certificates, in a folder that the servers may read."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.certificate = folder / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", f"{folder / name}.key", "-out", str(self.certificate))

    def sign(self, name, alternatives=None):
        """(certificate, key) of that name, for the hosts that it stands for."""
        path = self.folder / f"{self.name}-{name}"
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{path}.key", "-out", f"{path}.csr")
        extensions = self.folder / "extensions"
        extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
        openssl("x509", "-req", "-in", f"{path}.csr", "-days", "2", "-CA", str(self.certificate),
                "-CAkey", f"{self.folder / self.name}.key", "-CAcreateserial",
                "-extfile", str(extensions), "-out", f"{path}.pem")
        key = self.folder / f"{self.name}-{name}.key"
        key.chmod(0o644)
        return f"{path}.pem", str(key)
