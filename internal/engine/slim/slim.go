// Package slim serves a packed site with nothing but what files need: the
// server with its TLS and its fast lane, package static, redirects. Who imports
// it and not package millrace gets a program of a seventh of the size.
//
// What is to be served is not YAML but a [Plan], which the packer makes of a
// config that was checked.
package slim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"

	"millrace/internal/bytesize"
	"millrace/internal/lane"
	"millrace/internal/observe/accesslog"
	"millrace/internal/observe/meter"
	"millrace/internal/process/gogc"
	"millrace/internal/route/headers"
	"millrace/internal/route/site"
	"millrace/internal/server"
	"millrace/internal/server/guard"
	"millrace/static"
	"millrace/static/packfile"
)

// Plan is a config, as far as a slim program can do what it says.
type Plan struct {
	Listen []string
	TLS    TLS
	Log    accesslog.Options
	Lane   lane.Options
	Limits server.Options
	Sites  []Site
}

// TLS is server.TLSOptions as JSON: the short forms that a config has, by
// UnmarshalText, are not for plans.
type TLS server.TLSOptions

// Site is what some hosts serve.
type Site struct {
	Hosts         []string
	Routes        map[string]Route
	HeaderOptions // for paths that no route answers
}

// HeaderOptions are what a site or a route says about the header fields of its answers.
type HeaderOptions struct {
	Headers []headers.List
	CORS    *CORS
}

// CORS is headers.Options as JSON, without its short form.
type CORS headers.CORSOptions

func (a *HeaderOptions) compile() (*headers.AnswerRules, *headers.CORS, error) {
	rules, faults := headers.CompileAnswers(a.Headers)
	for key, err := range faults {
		return nil, nil, fmt.Errorf("headers: %s: %w", key, err)
	}
	if a.CORS == nil {
		return rules, nil, nil
	}
	policy, err := headers.NewCORS(headers.CORSOptions(*a.CORS))
	if err != nil {
		return nil, nil, fmt.Errorf("cors: %w", err)
	}
	return rules, policy, nil
}

// Route has one of the jobs.
type Route struct {
	Static   *static.Options
	Redirect *guard.Redirect
	Deny     *guard.Deny
	HeaderOptions
}

// ErrPlan says that the site was packed for a full millrace.
var ErrPlan = errors.New("this site asks for more than a slim millrace can do: pack it behind a full one")

// ReadPlan is the plan of a packed site.
func ReadPlan(s *packfile.Site) (p Plan, err error) {
	if len(s.Plan) == 0 {
		return p, ErrPlan
	}
	if err := json.Unmarshal(s.Plan, &p); err != nil {
		return p, fmt.Errorf("reading the plan of the packed site: %w", err)
	}
	return p, nil
}

// Server is a slim server.
type Server struct {
	server *server.Server
	log    *accesslog.Log
	files  []*static.Handler
	errors *slog.Logger

	garbage *gogc.Governor
	budget  bytesize.Size // of the contents in memory
}

// New builds everything and binds all addresses.
func New(p Plan, packed *packfile.Site, errorLog *slog.Logger) (_ *Server, err error) {
	s := &Server{garbage: gogc.New(), errors: errorLog}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close()) // s, whatever is returned beside the error
		}
	}()
	m := meter.New()
	setup := server.Setup{Listen: p.Listen, TLS: server.TLSOptions(p.TLS), Limits: p.Limits, Plain: site.NewTable(), Secure: site.NewTable()}
	s.log, err = accesslog.Open(p.Log, &m.LogDropped, accesslog.Reports(errorLog))
	if err != nil {
		return nil, err
	}
	setup.Log = s.log
	serial := uint64(0)
	if setup.TLS.Redirects() {
		known := func(host string) bool { return setup.Secure.Named(host) || s.server.Certifies(host) }
		to := &site.Route{Pattern: "/", Handler: guard.ToHTTPS(guard.RedirectPort(p.TLS.Listen), known), Job: m.Job("redirect")}
		serial++
		setup.Plain.Add(site.New(serial, []*site.Route{to}), nil)
	}
	for _, one := range p.Sites {
		routes, err := s.routes(one, packed, m)
		if err != nil {
			return nil, err
		}
		for _, table := range []*site.Table{setup.Secure, setup.Plain} {
			if table == setup.Plain && setup.TLS.Redirects() {
				continue
			}
			serial++
			on := site.New(serial, routes)
			if on.Headers, on.CORS, err = one.compile(); err != nil {
				return nil, err
			}
			table.Add(on, one.Hosts)
		}
	}
	if s.server, err = server.New(setup, p.Lane, m, errorLog); err != nil {
		return nil, err
	}
	s.server.CollectSooner(s.garbage.CollectSooner)
	if !p.Lane.Off {
		s.budget += cmp.Or(p.Lane.Memory, lane.DefaultMemory)
	}
	s.garbage.Budget(s.budget)
	return s, nil
}

// routes are those of a site.
func (s *Server) routes(one Site, packed *packfile.Site, m *meter.Meters) (routes []*site.Route, err error) {
	for _, pattern := range slices.Sorted(maps.Keys(one.Routes)) {
		var h http.Handler
		var job string
		r := one.Routes[pattern]
		switch {
		case r.Static != nil:
			o := *r.Static
			if before, ok := strings.CutSuffix(pattern, "/"); ok {
				o.Mount = before
			}
			o.Log = s.errors
			files, err := static.OpenPacked(packed, o)
			if err != nil {
				return nil, fmt.Errorf("route %s: %w", pattern, err)
			}
			s.files = append(s.files, files)
			h, job = files, "static"
			s.budget += cmp.Or(r.Static.Memory, static.DefaultMemory)
		case r.Redirect != nil:
			h, job = r.Redirect.Handler(pattern), "redirect"
		case r.Deny != nil:
			h, job = r.Deny.Handler(), "deny"
		default:
			return nil, ErrPlan
		}
		to := &site.Route{Pattern: pattern, Handler: site.Mount(pattern, h, r.Static != nil), Job: m.Job(job)}
		if to.Headers, to.CORS, err = r.compile(); err != nil {
			return nil, fmt.Errorf("route %s: %w", pattern, err)
		}
		routes = append(routes, to)
	}
	return routes, nil
}

// Run serves until ctx ends, and then drains, as a full server does.
func (s *Server) Run(ctx context.Context) error {
	return errors.Join(s.server.Run(ctx), s.close())
}

// Close ends Run at once.
func (s *Server) Close() { s.server.Close() }

// ReopenLogs opens the log file again by its name, after it was rotated.
func (s *Server) ReopenLogs() error { return s.log.Reopen() }

// Addrs are the URLs under which the site is served.
func (s *Server) Addrs() []string { return s.server.Addrs() }

func (s *Server) close() error {
	s.garbage.Budget(0)
	var errs []error
	for _, h := range s.files {
		errs = append(errs, h.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(errs...)
}
