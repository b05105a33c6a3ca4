// Package client asks the admin interface of a running proxy, and says in words what it answers.
package client

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/secret"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Client asks the proxy at an address. Its messages name what is missing by the flags of the command line.
type Client struct {
	Address    string // a TCP address, or "unix:" and a path
	BearerFile string // holds the operator's token; "": none is sent

	connections *http.Transport // that are used again; nil: each request has one of its own
}

// Send asks the proxy.
func (c *Client) Send(ctx context.Context, method, path, body string) (*http.Response, error) {
	if c.Address == "" {
		return nil, exit.Usagef("no admin interface to ask; give --admin ADDR or --admin unix:PATH, as 'fsm-proxy run' has it")
	}
	unix := strings.HasPrefix(c.Address, "unix:")
	if _, _, err := net.SplitHostPort(c.Address); err != nil && !unix {
		return nil, exit.Usagef("--admin %q is no address (%w); write it like 127.0.0.1:9091, or unix:/run/fsm-proxy.sock", c.Address, err)
	}
	request, err := c.request(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	connections := c.connections
	if connections == nil {
		connections = c.connect()
		connections.DisableKeepAlives = true
	}
	client := &http.Client{Transport: connections}
	answer, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the proxy at %s: %w; is it running with --admin %s?", c.Address, err, c.Address)
	}
	return answer, nil
}

// connect returns a transport that leads to the address whatever a request's URL says.
func (c *Client) connect() *http.Transport {
	socket, unix := strings.CutPrefix(c.Address, "unix:")
	return &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		if unix {
			network, address = "unix", socket
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
}

func (c *Client) request(ctx context.Context, method, path, body string) (*http.Request, error) {
	host := c.Address
	if strings.HasPrefix(c.Address, "unix:") {
		host = "localhost"
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		return nil, exit.Usagef("%s %s is no request: %w", method, path, err)
	}
	if method != http.MethodGet {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.BearerFile != "" {
		token, err := secret.Open("admin-bearer-file", c.BearerFile, hclog.NewNullLogger())
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token.Get())
	}
	return request, nil
}

// maxAnswer is how much is read of an answer, in bytes.
const maxAnswer = 16 << 20

// Read asks the proxy, and returns its answer as it is. What it refuses is an error, beside that.
func (c *Client) Read(ctx context.Context, method, path, body string) ([]byte, error) {
	return c.read(ctx, method, path, body, maxAnswer)
}

func (c *Client) read(ctx context.Context, method, path, body string, most int64) ([]byte, error) {
	answer, err := c.Send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, most))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the proxy's answer: %w", err)
	case answer.StatusCode >= http.StatusBadRequest:
		return said, refused(answer.Status, said)
	}
	return said, nil
}

// refused is the error of an answer that is a refusal.
func refused(status string, said []byte) error {
	var r admin.Refusal
	if json.Unmarshal(said, &r) != nil || r.Text == "" {
		return fmt.Errorf("the proxy refuses it: %s: %s", status, strictyaml.Printable(strings.TrimSpace(string(said[:min(len(said), 4096)]))))
	}
	text := strictyaml.Printable(r.Text)
	if r.Code != "" {
		text += " (" + strictyaml.Printable(r.Code) + ")"
	}
	return errors.New(text)
}

// Words says in lines what an answer of a kind says.
func Words[T admin.RunDetail | admin.Signalled | admin.Approval | admin.Approved | admin.Stands | admin.Started | admin.Forked | admin.Released | Approvals](said []byte) (string, error) {
	var told T
	if err := json.Unmarshal(said, &told); err != nil {
		return "", fmt.Errorf("reading the proxy's answer: %w; is it of this version?", err)
	}
	switch x := any(told).(type) {
	case admin.RunDetail:
		return runText(x), nil
	case admin.Signalled:
		return signalledText(x), nil
	case admin.Started:
		return startedText(x), nil
	case admin.Forked:
		return forkedText(x), nil
	case admin.Released:
		return releasedText(x), nil
	case admin.Stands:
		return standsText(x), nil
	case admin.Approval:
		return approvalText(x), nil
	case admin.Approved:
		return strictyaml.Printable(x.Name+" in run "+x.Run+": "+x.Answer) + "\n", nil
	case Approvals:
		return approvalsText(x), nil
	}
	return "", nil
}
