"""A private nginx in front of a server, for the tests; servers.py tells how it lives.

    with Nginx(server.address) as nginx:        # proxy_pass and nothing else
        nginx.address                           # where it listens
    Nginx(server.address, certificate=authority.sign("localhost", "IP:127.0.0.1"))
    Nginx(server.address, "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;")
"""
import signal
import socket

from server_house import Server

CONFIG = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port}{tls};
        location / {{
            proxy_pass http://{behind};
            {directives}
        }}
    }}
}}
"""


class Nginx(Server):
    """nginx, whichever release is installed, in one process."""

    KIND = "nginx"
    STOP_SIGNAL = signal.SIGTERM

    def __init__(self, behind, directives="", certificate=None):
        """`certificate`: (certificate, key), to speak TLS."""
        super().__init__()
        self.tls = " ssl; ssl_certificate {}; ssl_certificate_key {}".format(
            *certificate) if certificate else ""
        self.behind = "{}:{}".format(*behind)
        self.directives = directives
        self.address = ("127.0.0.1", self.port)

    def command(self):
        path = self.folder / "nginx.conf"
        path.write_text(CONFIG.format(folder=self.data, port=self.port, behind=self.behind,
                                      tls=self.tls, directives=self.directives))
        path.chmod(0o644)
        return ["nginx", "-c", str(path)]

    def connection_errors(self):
        return (OSError,)

    def answers(self):
        with socket.create_connection(self.address, timeout=5):
            return True
