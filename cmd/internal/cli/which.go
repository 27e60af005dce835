package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"millrace/internal/config"
	"millrace/internal/ops/admin"
)

// maxServers bounds how many running servers are asked what they serve.
const maxServers = 64

// Find is the running server that is meant: the one that was named, else
// the one at whose address one of the URLs is served, else the only one that
// has what the verb is about.
func (f Flags) Find(ctx context.Context, has func(context.Context, *Server) bool, pages ...string) (*Server, error) {
	at := string(f.Admin)
	if at == "" || at == config.Off { // MILLRACE_ADMIN=off is about serving
		found, err := admin.Find()
		if f.PID != 0 {
			if found, err = f.ofProcess(ctx, found); err != nil {
				return nil, err
			}
		}
		if len(found) > 1 {
			if found, err = meant(ctx, found, has, pages); err != nil {
				return nil, err
			}
		}
		switch {
		case len(found) == 1:
			at = found[0]
		case len(found) > 1:
			return nil, Failure(fmt.Errorf("%d servers run here", len(found)), "say which is meant:"+Choices(ctx, found))
		case err != nil:
			return nil, err
		default:
			return nil, Failure(
				ErrNoServer,
				"start one with `millrace cache UPSTREAM`, or say where it is: --admin ADDR, the \"admin\" of its banner",
			)
		}
	}
	r, err := newServer(at)
	if err != nil {
		return nil, Usage(err.Error(), "")
	}
	if named := at == string(f.Admin); named && f.PID != 0 && !r.isProcess(ctx, f.PID) {
		return nil, Failure(fmt.Errorf("the server at %s is not process %d", at, f.PID), "leave out --admin or --pid")
	}
	return r, nil
}

// meant narrows down the servers that were found.
func meant(ctx context.Context, found []string, has func(context.Context, *Server) bool, pages []string) ([]string, error) {
	var at, able []string
	named := ""
	for _, socket := range found[:min(len(found), maxServers)] {
		r, err := newServer(socket)
		if err != nil {
			continue
		}
		addrs, _ := r.Addrs(ctx) // one that does not answer may still be meant
		if i := slices.IndexFunc(pages, func(page string) bool { return servedAt(addrs, page) }); i >= 0 {
			if len(at) > 0 && pages[i] != named {
				return nil, Usage(fmt.Sprintf("%s and %s are served by different servers", named, pages[i]), "run the command once for each of them")
			}
			at, named = append(at, socket), pages[i]
		}
		if has(ctx, r) {
			able = append(able, socket)
		}
	}
	switch {
	case len(at) > 0:
		return at, nil
	case len(able) > 0:
		return able, nil
	}
	return found, nil
}

// All are the running servers that can be found, or the one that was named.
func (f Flags) All(ctx context.Context) (all []*Server, named bool, err error) {
	named = f.Admin != "" && f.Admin != config.Off // MILLRACE_ADMIN=off is about serving
	found := []string{string(f.Admin)}
	if !named {
		found, _ = admin.Find() // where nothing can be found out, nothing was found
	}
	if f.PID != 0 {
		named = true
		if found, err = f.ofProcess(ctx, found); err != nil {
			return nil, named, err
		}
	}
	for _, at := range found {
		r, err := newServer(at)
		if err != nil {
			return nil, named, Usage(err.Error(), "")
		}
		all = append(all, r)
	}
	return all, named, nil
}

// FindAny is Find for a verb that any server can answer.
func (f Flags) FindAny(ctx context.Context) (*Server, error) {
	r, err := f.Find(ctx, func(context.Context, *Server) bool { return true })
	if errors.Is(err, ErrNoServer) {
		return nil, Failure(ErrNoServer, "start one with `millrace serve`, or say where it is: --admin ADDR, the \"admin\" of its banner")
	}
	return r, err
}

// Alone reports whether exactly one server runs here.
func Alone() bool {
	found, err := admin.Find()
	return err == nil && len(found) == 1
}

// Answers reports whether a server's admin listener is at an address.
func Answers(ctx context.Context, at string) bool {
	r, err := newServer(at)
	if err != nil {
		return false
	}
	_, err = r.Addrs(ctx)
	return err == nil
}

// Served reports whether a server that runs here has the address of a URL.
func Served(ctx context.Context, page string) bool {
	found, _ := admin.Find() // of those that cannot be found nothing is known
	return slices.ContainsFunc(found, func(at string) bool {
		r, err := newServer(at)
		if err != nil {
			return false
		}
		addrs, err := r.Addrs(ctx)
		return err == nil && servedAt(addrs, page)
	})
}

// servedAt reports whether a URL leads to a server with these addresses. A name
// says nothing about where it leads, so it counts by its port alone.
func servedAt(addrs []string, page string) bool {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" {
		return false
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "ws": "80", "https": "443", "wss": "443"}[u.Scheme]
	}
	host := strings.TrimSuffix(u.Hostname(), ".")
	return slices.ContainsFunc(addrs, func(addr string) bool {
		_, place, ok := strings.Cut(addr, "://")
		bound, boundPort, err := net.SplitHostPort(place)
		return ok && err == nil && boundPort == port && reaches(host, bound)
	})
}

// reaches reports whether a host of a URL may lead to the address of a listener,
// which is localhost where it listens on every address of the machine, 0.0.0.0 or
// :: where it is every address of one family.
func reaches(host, bound string) bool {
	there, err := netip.ParseAddr(bound)
	if err != nil {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap() == there.Unmap() || there.IsUnspecified() && ip.Unmap().Is4() == there.Is4()
	}
	return !strings.EqualFold(host, "localhost") || there.IsLoopback() || there.IsUnspecified()
}
