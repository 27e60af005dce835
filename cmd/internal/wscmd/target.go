package wscmd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/websocket/control"
)

// channelFlags say which channels a verb talks to.
type channelFlags struct {
	URL   string `name:"url" placeholder:"URL" env:"MILLRACE_WS_URL" help:"Where the channels are: the route's URL, like http://127.0.0.1:8080/. Default: those of the server that runs on this machine."`
	Route string `placeholder:"ROUTE" help:"Which of the running server's routes with channels, if it has several: /live/ or example.org/live/."`

	cli.Flags `embed:""`
}

// channelsAt is a route with channels.
type channelsAt struct {
	base   string // a URL that ends in "/"
	client *http.Client
	close  func()
}

// find is where the channels are now: a server that was started anew may be
// elsewhere.
func (f channelFlags) find(ctx context.Context) (*channelsAt, error) {
	if f.URL != "" {
		base, err := channelsURL(f.URL)
		if err != nil {
			return nil, err
		}
		t := http.DefaultTransport.(*http.Transport).Clone()
		return &channelsAt{base, &http.Client{Transport: t, CheckRedirect: noRedirect}, t.CloseIdleConnections}, nil
	}
	r, err := f.Flags.Find(ctx, f.have)
	if err != nil {
		if errors.Is(err, cli.ErrNoServer) {
			return nil, cli.Failure(cli.ErrNoServer, "start one with `millrace ws --channels`, or say where the channels are: --url http://127.0.0.1:8080/")
		}
		return nil, err
	}
	addrs, err := r.Addrs(ctx)
	if err != nil {
		return nil, err
	}
	var all []control.Route
	if err := r.List(ctx, control.Prefix, "routes for WebSockets", &all); err != nil {
		return nil, err
	}
	one, err := f.choose(all)
	if err != nil {
		return nil, err
	}
	front, err := cli.NewFront(addrs)
	if err != nil {
		return nil, err
	}
	scheme, place, _ := strings.Cut(front.Site.BaseURL, "://")
	if front.Site.Secure { // plain HTTP may only redirect
		scheme = "https"
	}
	if one.Host != "" {
		place = strings.Replace(one.Host, "*", "any", 1)
	}
	return &channelsAt{
		base:   scheme + "://" + place + strings.TrimSuffix(one.Route, "/") + "/",
		client: &http.Client{Transport: front.Transport, CheckRedirect: noRedirect}, close: front.Close,
	}, nil
}

// have reports whether a server has channels that can be meant.
func (f channelFlags) have(ctx context.Context, r *cli.Server) bool {
	var all []control.Route
	if err := r.List(ctx, control.Prefix, "routes for WebSockets", &all); err != nil {
		return false
	}
	return slices.ContainsFunc(all, func(s control.Route) bool {
		return s.Kind == "channels" && (f.Route == "" || f.Route == s.Route || f.Route == s.Host+s.Route)
	})
}

// noRedirect shows redirects as they are: a publication must not be lost in
// becoming a GET, and a key not go to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// choose is the route that is meant.
func (f channelFlags) choose(all []control.Route) (control.Route, error) {
	all = slices.DeleteFunc(all, func(s control.Route) bool { return s.Kind != "channels" })
	if i := slices.IndexFunc(all, func(s control.Route) bool { return f.Route == s.Host+s.Route }); i >= 0 {
		return all[i], nil
	}
	all = slices.DeleteFunc(all, func(s control.Route) bool { return f.Route != "" && f.Route != s.Route })
	switch {
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0 && f.Route != "":
		return control.Route{}, cli.Failure(fmt.Errorf("the running server has no channels at %s", f.Route), "leave --route out to see which it has")
	case len(all) == 0:
		return control.Route{}, cli.Failure(errors.New("the running server has no channels"), "start one that has: `millrace ws --channels`; in a config it is the route `/live/: {websocket: channels}`")
	}
	var hint strings.Builder
	hint.WriteString("say which is meant:")
	for _, s := range all {
		hint.WriteString("\n    --route " + s.Host + s.Route)
	}
	return control.Route{}, cli.Failure(fmt.Errorf("%d routes of the running server have channels", len(all)), hint.String())
}

// channelsURL is the route's URL, also where somebody gives that of one of the
// things below it.
func channelsURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return "", cli.Usage(fmt.Sprintf("--url %q is not a URL", text), "for example --url http://127.0.0.1:8080/")
	}
	switch u.Scheme {
	case "http", "https":
	case "ws", "wss":
		u.Scheme = "http" + strings.TrimPrefix(u.Scheme, "ws")
	default:
		return "", cli.Usage(fmt.Sprintf("--url %q: nothing speaks %q", text, u.Scheme), "for example --url http://127.0.0.1:8080/")
	}
	u.RawQuery, u.Fragment = "", ""
	dir, last := u.Path, ""
	if i := strings.LastIndexByte(u.Path, '/'); i >= 0 {
		dir, last = u.Path[:i], u.Path[i+1:]
	}
	if last != "" && !slices.Contains([]string{"ws", "sse", "publish", "client.js"}, last) {
		dir += "/" + last
	}
	u.Path, u.RawPath = dir+"/", ""
	return u.String(), nil
}

// channelQuery names channels.
func channelQuery(channels ...string) string { return url.Values{"channel": channels}.Encode() }

// refused says what to do about an answer that is none. unlock is what helps
// where something has to be shown first.
func (at *channelsAt) refused(resp *http.Response, what, text, unlock string) error {
	err := fmt.Errorf("%s: %s says %s", what, at.base, resp.Status)
	if text = strings.TrimSpace(text); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return cli.Failure(err, unlock)
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return cli.Failure(err, "--url must be that of a route with channels, like http://127.0.0.1:8080/live/")
	case http.StatusMovedPermanently, http.StatusPermanentRedirect, http.StatusFound, http.StatusTemporaryRedirect:
		return cli.Failure(err, "it is elsewhere: --url "+resp.Header.Get("Location"))
	}
	return err
}
