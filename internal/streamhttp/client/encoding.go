package client

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// decoded returns an answer whose body is as it was before the server encoded it. No encoding is asked for, but where
// none is refused either, a server may use one, and what stands in front of servers often does so. The answer itself is
// not changed.
func decoded(resp *http.Response) *http.Response {
	encodings := resp.Header["Content-Encoding"]
	if len(encodings) == 1 && strings.EqualFold(encodings[0], "identity") {
		return resp
	}
	plain := *resp
	plain.Body, plain.ContentLength = &decoder{of: resp.Body, encoding: strings.ToLower(strings.Join(encodings, ", "))}, -1
	return &plain
}

// decoder reads an encoded body. Nothing is read before its first byte is asked for.
type decoder struct {
	of       io.ReadCloser
	encoding string
	plain    *gzip.Reader
	err      error
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.plain == nil && d.err == nil {
		if d.encoding != "gzip" && d.encoding != "x-gzip" {
			d.err = fmt.Errorf("the upstream answered with Content-Encoding %q, for which nobody has asked", d.encoding)
		} else {
			d.plain, d.err = gzip.NewReader(d.of)
		}
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.plain.Read(p)
}

// Close closes the body that is read.
func (d *decoder) Close() error { return d.of.Close() }
