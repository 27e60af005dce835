package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"millrace/bench/subjects/internal/site/sitetest"
)

func TestServesTheSite(t *testing.T) {
	h, err := handler(sitetest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	sitetest.Check(t, &http.Client{Transport: &http.Transport{DisableCompression: true}}, server.URL)
}
