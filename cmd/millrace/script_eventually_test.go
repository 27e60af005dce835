package main

import (
	"flag"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// eventually [-H 'NAME: VALUE'] REGEXP URL asks again and again until status,
// header and body match, for what a server does after its first answer.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	set := flag.NewFlagSet("eventually", flag.ContinueOnError)
	header := set.String("H", "", "")
	if err := set.Parse(args); err != nil || neg || set.NArg() != 2 {
		ts.Fatalf("usage: eventually [-H 'NAME: VALUE'] REGEXP URL")
	}
	re, err := regexp.Compile("(?m)" + set.Arg(0))
	ts.Check(err)
	const between = 50 * time.Millisecond
	for began := time.Now(); ; time.Sleep(between) {
		said := askOnce(ts, set.Arg(1), *header)
		if re.MatchString(said) {
			_, err := io.WriteString(ts.Stdout(), said)
			ts.Check(err)
			return
		}
		// What nobody waits for is done when nothing else wants the processor,
		// and the other packages' tests may want it for minutes.
		if time.Since(began) > 4*patience {
			ts.Fatalf("it never matched; the last answer:\n%s", said)
		}
	}
}

// askOnce is an answer as text.
func askOnce(ts *testscript.TestScript, url, header string) string {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	ts.Check(err)
	if name, value, ok := strings.Cut(header, ":"); ok {
		req.Header.Set(name, strings.TrimSpace(value))
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		return "no answer: " + err.Error()
	}
	defer resp.Body.Close()
	var b strings.Builder
	b.WriteString(resp.Proto + " " + resp.Status + "\n")
	ts.Check(resp.Header.Write(&b))
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	ts.Check(err)
	return strings.ReplaceAll(b.String(), "\r", "") + "\n" + string(body)
}
