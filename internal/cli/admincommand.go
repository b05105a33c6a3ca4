package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

// adminTime is how long the proxy may take to answer.
const adminTime = 30 * time.Second

// adminFlags say where a proxy's admin interface is. They have the names that
// they have for run, and with them the same environment variables: in a
// container, where run has them from there, nothing has to be said.
type adminFlags struct {
	address    string
	bearerFile string
}

// newAdmin is for images that have no curl.
func newAdmin(c *console) *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:               "admin --admin ADDR|unix:PATH [GET|PUT|POST] PATH [BODY]",
		Short:             "Ask the admin interface of a running proxy",
		Example:           "  fsm-proxy admin --admin unix:/run/fsm-proxy/admin.sock GET /v1/policy",
		ValidArgsFunction: adminRequests,
		RunE: func(cmd *cobra.Command, args []string) error {
			method, path, body, err := adminRequest(args)
			if err != nil {
				return err
			}
			return f.ask(cmd.Context(), c.out, method, path, body)
		},
	}
	cmd.Flags().StringVar(&f.address, "admin", "", "where the admin interface is: `ADDR`, or unix:PATH")
	cmd.Flags().StringVar(&f.bearerFile, "admin-bearer-file", "", "a `FILE` that holds the bearer token for it")
	return cmd
}

// adminRequest takes the arguments apart.
func adminRequest(args []string) (method, path, body string, err error) {
	given, method := "", http.MethodGet
	if len(args) > 0 && !strings.HasPrefix(args[0], "/") {
		given, method, args = args[0], strings.ToUpper(args[0]), args[1:]
	}
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPost:
	default:
		return "", "", "", usagef("%q is neither GET, PUT nor POST, nor a path that begins with /", given)
	}
	if len(args) == 0 || len(args) > 2 || !strings.HasPrefix(args[0], "/") {
		return "", "", "", usagef("give one path, like /v1/policy, and behind it a body if there is one")
	}
	if len(args) == 2 {
		body = args[1]
	}
	return method, args[0], body, nil
}

// ask prints what the proxy answers.
func (f *adminFlags) ask(ctx context.Context, out io.Writer, method, path, body string) error {
	if f.address == "" {
		return usagef("where is it? give --admin ADDR or --admin unix:PATH, as 'fsm-proxy run' has it")
	}
	if _, _, err := net.SplitHostPort(f.address); err != nil && !strings.HasPrefix(f.address, "unix:") {
		return usagef("--admin %q is no address (%w); write it like 127.0.0.1:9091, or unix:/run/fsm-proxy.sock", f.address, err)
	}
	ctx, stop := context.WithTimeout(ctx, adminTime)
	defer stop()
	request, err := f.request(ctx, method, path, body)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: f.dial, DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("asking the proxy at %s: %w; is it running with --admin %s?", f.address, err, f.address)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, strings.TrimSpace(string(said)))
	}
	_, err = io.Copy(out, answer.Body)
	return err
}

func (f *adminFlags) request(ctx context.Context, method, path, body string) (*http.Request, error) {
	host := f.address
	if strings.HasPrefix(f.address, "unix:") {
		host = "localhost"
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		return nil, usagef("%s %s is no request: %w", method, path, err)
	}
	if method != http.MethodGet {
		request.Header.Set("Content-Type", "application/json")
	}
	if f.bearerFile != "" {
		token, err := openTokenFile("admin-bearer-file", f.bearerFile, hclog.NewNullLogger())
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+token.get())
	}
	return request, nil
}

func (f *adminFlags) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if path, unix := strings.CutPrefix(f.address, "unix:"); unix {
		network, address = "unix", path
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}
