package main

import (
	"net"
	"net/http"
	"testing"

	"github.com/valyala/fasthttp"

	"millrace/bench/subjects/internal/site/sitetest"
)

func TestServesTheSite(t *testing.T) {
	h, err := handler(sitetest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &fasthttp.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true}}
	sitetest.Check(t, client, "http://"+l.Addr().String())
	if err := server.Shutdown(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
