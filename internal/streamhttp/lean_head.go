package streamhttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/net/http/httpguts"
)

// requestHead makes a request's head up to its length: the request line and the
// header. What would not be read as that very line by every server is an error.
func requestHead(req *http.Request) ([]byte, error) {
	target := req.URL.RequestURI()
	switch {
	case !httpguts.ValidHeaderFieldName(req.Method):
		return nil, fmt.Errorf("the method %q is no HTTP method", req.Method)
	case slices.ContainsFunc([]byte(target), isSpaceOrControl):
		return nil, errors.New("the path or query of the URL holds a space or a control character: escape it (%20)")
	case req.URL.Host == "" || !httpguts.ValidHostHeader(req.URL.Host):
		return nil, fmt.Errorf("the host %q has a character that no host has: write an international name in its ASCII form (xn--…)", req.URL.Host)
	}
	b := append(append([]byte(req.Method), ' '), target...)
	b = appendLine(append(b, " HTTP/1.1\r\n"...), "Host", req.URL.Host)
	for name, values := range req.Header {
		for _, value := range values {
			if err := CheckField(name, value); err != nil {
				return nil, err
			}
			b = appendLine(b, name, value)
		}
	}
	return b, nil
}

func isSpaceOrControl(c byte) bool { return c <= ' ' || c == 0x7f }

// framing are the header names that say where a request ends or to whom it goes:
// a client writes them itself, once.
var framing = []string{"Content-Length", "Host", "Trailer", "Transfer-Encoding"}

// CheckField says why a line of a header cannot be sent: it is not one line of
// one name, or it is one that the client writes itself. The error repeats nothing
// that may be a secret.
func CheckField(name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return errors.New("the header's name has a character that no header name has")
	case slices.Contains(framing, http.CanonicalHeaderKey(name)):
		return fmt.Errorf("the header %s is written by the HTTP client itself: leave it out", name)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("the value of the header %s has a line break or another control character", name)
	}
	return nil
}

// appendLine appends a line of a header that [CheckField] has nothing against.
func appendLine(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

// appendFields appends lines of a header.
func appendFields(b []byte, fields []Field) []byte {
	for _, f := range fields {
		b = appendLine(b, f.Name, f.Value)
	}
	return b
}

// appendLength appends the rest of the header: how long the body is.
func appendLength(b []byte, method string, length int) []byte {
	if length > 0 || method == http.MethodPost {
		b = appendNumber(b, "Content-Length", int64(length))
	}
	return append(b, "\r\n"...)
}
