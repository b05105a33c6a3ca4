package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// playReverseProxy is the standard library's proxy as one would tune it:
// enough idle connections, no compression, pooled buffers.
func playReverseProxy(a roleArgs) error {
	target, err := url.Parse(a.upstream)
	if err != nil || target.Host == "" {
		return errors.Join(fmt.Errorf("reading the upstream's URL %q", a.upstream), err)
	}
	transport := tunedTransport()
	return serveHTTP(&httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
		Transport:  transport,
		BufferPool: &bufferPool{},
	})
}

// tunedTransport keeps a connection for every caller there may be.
func tunedTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 512
	t.DisableCompression = true
	t.ForceAttemptHTTP2 = false
	return t
}

// bufferPool is an httputil.BufferPool over sync.Pool.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }
