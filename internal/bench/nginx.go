package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// nginxConf passes bytes with keep-alive on both sides. Connections and their
// requests are not limited, so that none is closed in mid-measurement; answers
// are buffered but for streams.
const nginxConf = `daemon off;
worker_processes auto;
pid %[1]s/nginx.pid;
error_log %[1]s/error.log;
events { worker_connections 4096; }
http {
	access_log off;
	keepalive_timeout 300s;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/client; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	upstream wrapped {
		server %[3]s;
		keepalive 256;
		keepalive_timeout 300s;
		keepalive_requests 1000000000;
	}
	server {
		listen %[2]s;
		location / {
			proxy_pass http://wrapped;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering %[4]s;
		}
	}
}
`

// errNoNginx makes the table say that nginx is missing, and nothing fail.
var errNoNginx = errors.New("nginx is not installed")

// findNginx also looks where a user's PATH often does not lead.
func findNginx() (string, error) {
	for _, name := range []string{"nginx", "/usr/sbin/nginx", "/usr/local/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoNginx
}

// nginxVersion is the version line, "" without nginx.
func nginxVersion() string {
	path, err := findNginx()
	if err != nil {
		return ""
	}
	out, err := exec.Command(path, "-v").CombinedOutput()
	if err != nil {
		return ""
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), "version: ")
	return version
}

// startNginx runs nginx in front of upstream (host:port), its files in dir.
func startNginx(ctx context.Context, dir, upstream string, sse bool) (*running, error) {
	path, err := findNginx()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	buffering := "on"
	if sse {
		buffering = "off"
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, dir, addr, upstream, buffering), 0o600); err != nil {
		return nil, fmt.Errorf("writing nginx' configuration: %w", err)
	}
	p, err := startProcess([]string{path, "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", conf})
	if err != nil {
		return nil, err
	}
	p.tree = true
	return awaitRunning(ctx, p, addr)
}
