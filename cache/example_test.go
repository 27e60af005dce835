package cache_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"millrace/cache"
	"millrace/cache/key"
	"millrace/cache/purge"
)

// slowAPI counts its answers.
func slowAPI() *httptest.Server {
	n := 0
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("Surrogate-Key", "posts")
		fmt.Fprintf(w, "answer %d to %s", n, r.URL)
	}))
}

func get(url string) {
	resp, err := http.Get(url)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s (%s)\n", body, resp.Header.Get("Cache-Status"))
}

// A cache is a plain handler in any Go program. Options are set by field: To is
// a field of the options that it shares with the reverse proxy.
func Example() {
	api := slowAPI()
	defer api.Close()

	var o cache.Options
	o.To = []string{api.URL}
	o.TTL = 5 * time.Minute
	o.Memory = 64 << 20
	h, err := cache.New(o, cache.Deps{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()
	site := httptest.NewServer(h)
	defer site.Close()

	get(site.URL + "/posts")
	if resp, err := http.Get(site.URL + "/posts"); err == nil {
		resp.Body.Close()
		fmt.Println("again: a hit:", strings.HasPrefix(resp.Header.Get("Cache-Status"), "millrace; hit;"))
	}
	// Output:
	// answer 1 to /posts (millrace; fwd=uri-miss; fwd-status=200; stored)
	// again: a hit: true
}

// Rules are for some paths, statuses or types. The first that matches counts.
func ExampleOptions_rules() {
	api := slowAPI()
	defer api.Close()

	short, long := 10*time.Second, 30*24*time.Hour
	var o cache.Options
	o.To = []string{api.URL}
	o.TTL = time.Minute
	o.Rules = []cache.Rule{
		{Status: []string{"404"}, TTL: &short},
		{Path: "/assets/*", TTL: &long, Share: true},
		{Path: "/greeting", Key: &key.Options{Cookies: []string{"lang"}}},
		{Path: "/live/*", Bypass: true},
	}
	h, err := cache.New(o, cache.Deps{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()
	site := httptest.NewServer(h)
	defer site.Close()

	get(site.URL + "/live/scores")
	get(site.URL + "/live/scores")
	// Output:
	// answer 1 to /live/scores (millrace; fwd=bypass; fwd-status=200; detail=rule)
	// answer 2 to /live/scores (millrace; fwd=bypass; fwd-status=200; detail=rule)
}

// When Purge has returned, no request that starts sees what was stored before.
func ExampleHandler_Purge() {
	api := slowAPI()
	defer api.Close()

	var o cache.Options
	o.To = []string{api.URL}
	o.TTL = time.Hour
	h, err := cache.New(o, cache.Deps{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()
	site := httptest.NewServer(h)
	defer site.Close()

	get(site.URL + "/posts")
	if err := h.Purge(context.Background(), purge.Selector{Tag: "posts", Hard: true}); err != nil {
		fmt.Println(err)
	}
	get(site.URL + "/posts")
	// Output:
	// answer 1 to /posts (millrace; fwd=uri-miss; fwd-status=200; stored)
	// answer 2 to /posts (millrace; fwd=uri-miss; fwd-status=200; stored)
}

// Explain says what would happen to a request, and why, without asking anyone.
func ExampleHandler_Explain() {
	var o cache.Options
	o.To = []string{"http://127.0.0.1:5000"}
	h, err := cache.New(o, cache.Deps{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close()

	r := httptest.NewRequest(http.MethodGet, "http://blog.example/posts", nil)
	r.Header.Set("Cookie", "session=1")
	e := h.Explain(r)
	fmt.Println(e.Outcome+":", e.Reason)
	// Output:
	// bypass: the request carries cookies, and the preset api keeps no answers that may be one user's
}
