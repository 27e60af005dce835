// Command apigocache is the small caching proxy of the published comparison,
// written anew to its description: net/http in front and behind, a cache of
// github.com/patrickmn/go-cache whose entries live five minutes, and a config
// as JSON. As there, whatever the upstream answers is kept and served with
// status 200, errors too: the experiment api-cache counts what that does.
//
//	apigocache -config FILE [-expiry 5m]
//
// The file: {"HostPort": "127.0.0.1:PORT", "Stacosys": "http://UPSTREAM", "CorsOrigin": "*"}.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/patrickmn/go-cache"
)

// maxBody is more than any answer of that API has.
const maxBody = 1 << 20

// config is as published.
type config struct {
	HostPort   string // where to listen
	Stacosys   string // the upstream's URL
	CorsOrigin string // of Access-Control-Allow-Origin
}

func main() {
	file := flag.String("config", "config.json", "the config's `file`")
	expiry := flag.Duration("expiry", 5*time.Minute, "how long an answer is kept")
	flag.Parse()
	c, err := load(*file)
	if err == nil {
		err = http.ListenAndServe(c.HostPort, newProxy(c, *expiry))
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "apigocache:", err)
		os.Exit(1)
	}
}

func load(file string) (c config, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("reading %s: %w", file, err)
	}
	if c.HostPort == "" || c.Stacosys == "" {
		return c, fmt.Errorf("reading %s: HostPort and Stacosys must be set", file)
	}
	return c, nil
}

type proxy struct {
	config config
	cache  *cache.Cache
}

// newProxy sweeps the cache every two lifetimes, as go-cache's manual does.
func newProxy(c config, expiry time.Duration) http.Handler {
	p := &proxy{config: c, cache: cache.New(expiry, 2*expiry)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /comments/count", p.count)
	return mux
}

// count answers from the cache or asks the upstream; two requests that miss at
// once both ask.
func (p *proxy) count(w http.ResponseWriter, r *http.Request) {
	page := r.URL.Query().Get("url")
	body, found := p.cache.Get(page)
	if !found {
		fetched, err := p.fetch(page)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		p.cache.Set(page, fetched, cache.DefaultExpiration)
		body = fetched
	}
	w.Header().Set("Access-Control-Allow-Origin", p.config.CorsOrigin)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body.([]byte))
}

// fetch does not look at the status: that is the published program's mistake,
// and part of what is measured.
func (p *proxy) fetch(page string) ([]byte, error) {
	answer, err := http.Get(p.config.Stacosys + "/comments/count?url=" + url.QueryEscape(page))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(io.LimitReader(answer.Body, maxBody))
}
