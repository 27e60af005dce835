// Package workload holds the requests that the load generator sends.
package workload

import (
	"strings"

	"millrace/bench/subjects/internal/testsite"
)

// Workload is a list of requests that a connection sends over and over.
type Workload struct {
	Name    string // in raw data: a word
	Title   string // in RESULTS.md
	Browser bool   // with a browser's headers and a cookie
	Accept  string // that header's value, if there is one beside Browser
	files   []testsite.File
}

// All are workloads of the whole test site, as it is and as a browser asks for it.
func All() []Workload {
	return []Workload{
		{Name: "root", Title: "`/` alone, bare", files: testsite.Files[:1]},
		{Name: "paths", Title: "seven paths, bare", files: testsite.Files},
		{Name: "browser", Title: "seven paths, Chromium", Browser: true, files: testsite.Files},
	}
}

// Pictures are the workloads of bench/run images: a photograph whose WebP is
// ready, asked for as a browser of today does. Their sizes are that of the WebP.
func Pictures() []Workload {
	const accept = "image/webp,*/*"
	return []Workload{
		{Name: "webp20k", Title: "a WebP of 20 KB", Accept: accept, files: []testsite.File{{Path: "/preview.jpg", Kind: testsite.Image}}},
		{Name: "webp70k", Title: "a WebP of 70 KB", Accept: accept, files: []testsite.File{{Path: "/Aqua.jpg", Kind: testsite.Image}}},
		{Name: "webp350k", Title: "a WebP of 350 KB", Accept: accept, files: []testsite.File{{Path: "/BytheWater.jpg", Kind: testsite.Image}}},
	}
}

// Request is one request of a workload, and what its answer must hold.
type Request struct {
	File testsite.File
	Head string // from the request line to the empty line
}

// Fixed tells that the workload is the one request that a load generator sends
// of itself when it is given Path, so that it needs no script to choose the next.
func (w Workload) Fixed() bool { return len(w.files) == 1 && !w.Browser && w.Accept == "" }

// Path is that of the workload's first request.
func (w Workload) Path() string { return w.files[0].Path }

// Requests are the requests in their order, for a server that is reached as
// host ("127.0.0.1:8080").
func (w Workload) Requests(host string) []Request {
	requests := make([]Request, 0, len(w.files))
	for _, f := range w.files {
		var b strings.Builder
		b.WriteString("GET " + f.Path + " HTTP/1.1\r\nHost: " + host + "\r\n")
		if w.Browser {
			b.WriteString(chromium(f.Kind, "http://"+host+"/"))
		}
		if w.Accept != "" {
			b.WriteString("Accept: " + w.Accept + "\r\n")
		}
		b.WriteString("\r\n")
		requests = append(requests, Request{f, b.String()})
	}
	return requests
}

// cookie is about 200 bytes: two of statistics, a session, a choice.
const cookie = "_ga=GA1.1.1804289383.1719830000; _ga_X7T2KQ90WD=GS2.1.s1761052410$o14$g1$t1761052688$j41$l0$h0; " +
	"session=7b1f8a40c2d94e6fb0a3951e8d27c6f4; theme=dark; consent=analytics%3D1%26ads%3D0; lang=en"

// chromium is what a current Chromium on a desktop sends over HTTP/1.1 to a
// trustworthy origin, in its order, for a page it is on already.
func chromium(kind testsite.Kind, page string) string {
	lines := []string{
		"Connection: keep-alive",
		`sec-ch-ua-platform: "Linux"`,
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
		`sec-ch-ua: "Chromium";v="142", "Not_A Brand";v="99"`,
		"sec-ch-ua-mobile: ?0",
	}
	switch kind {
	case testsite.Navigation:
		lines = append(lines,
			"Upgrade-Insecure-Requests: 1",
			"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
			"Sec-Fetch-Site: same-origin",
			"Sec-Fetch-Mode: navigate",
			"Sec-Fetch-User: ?1",
			"Sec-Fetch-Dest: document")
	case testsite.Script:
		lines = append(lines, "Accept: */*",
			"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script")
	case testsite.Image:
		lines = append(lines, "Accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8",
			"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image")
	case testsite.Fetch:
		lines = append(lines, "Accept: */*",
			"Sec-Fetch-Site: same-origin", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty")
	}
	lines = append(lines,
		"Referer: "+page,
		"Accept-Encoding: gzip, deflate, br, zstd",
		"Accept-Language: en-GB,en;q=0.9,uk;q=0.8,de;q=0.7",
		"Cookie: "+cookie)
	return strings.Join(lines, "\r\n") + "\r\n"
}
