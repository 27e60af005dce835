package cache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	experiment "millrace/lab/experiment/former"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// control is where an instance takes purges, among its URLs.
const control = "control"

// arms are all, the baseline first.
func (m *measurement) arms(ctx context.Context) []trial.Arm {
	return []trial.Arm{
		m.Arm(nginx, "nginx with proxy_cache, lock and background update as its manual advises", m.NginxWith(ctx, "cache.conf.tmpl", func(p experiment.Place) map[string]string {
			return map[string]string{"Address": p.Address, "Upstream": m.api.Address(), "Memory": strconv.Itoa(memory)}
		})),
		m.Arm(varnish, "Varnish with its built-in VCL, answers in malloc, threads for all connections, no record of requests", m.varnish(ctx)),
		m.Arm(millrace, "millrace cache with its defaults, no log", m.millrace()),
	}
}

// millrace is its command as a cache.
func (m *measurement) millrace() experiment.Launch {
	admin := func(p experiment.Place) string { return "unix:" + filepath.Join(p.Dir, "admin") }
	l := m.MillraceWith(func(p experiment.Place) []string {
		return []string{
			"cache", "http://" + m.api.Address(), "--listen", p.Address,
			"--memory", strconv.Itoa(memory) + "MiB", "--log", "off", "--admin", admin(p),
		}
	})
	l.URLs = func(p experiment.Place) map[string]string { return map[string]string{control: admin(p)} }
	return l
}

// silenced are the records that Varnish writes into its shared memory for each
// request. None of the servers keeps a log here, so it writes none either;
// errors and what its processes tell each other remain.
const silenced = "Begin End Link SessOpen SessClose ReqStart ReqMethod ReqURL ReqProtocol ReqHeader ReqUnset ReqAcct " +
	"RespProtocol RespStatus RespReason RespHeader RespUnset VCL_call VCL_return VCL_use VCL_acl VCL_Log Hit HitMiss HitPass " +
	"Timestamp Length TTL BereqMethod BereqURL BereqProtocol BereqHeader BereqUnset BereqAcct " +
	"BerespProtocol BerespStatus BerespReason BerespHeader BerespUnset BackendOpen BackendClose BackendStart " +
	"Fetch_Body Storage Gzip VSL Filters"

// errNoVCL is why Varnish is not measured outside of a checkout.
var errNoVCL = errors.New("its config is in millrace's repository, lab/bench/peers/varnish: run this in a checkout")

// varnish is varnishd with its VCL, which it compiles with the C compiler that
// Debian's package asks for.
func (m *measurement) varnish(ctx context.Context) experiment.Launch {
	exe, err := subject.Look("varnishd", "varnish")
	if err == nil && m.Env.Bench == nil {
		err = errNoVCL
	}
	if err != nil {
		return experiment.Launch{Missing: err}
	}
	_, version, _ := strings.Cut(subject.Version(ctx, exe, "-V"), "(")
	version, _, _ = strings.Cut(version, " revision")
	vcl := func(p experiment.Place) string { return filepath.Join(p.Dir, "cache.vcl") }
	return experiment.Launch{
		Exe: exe, Version: version,
		Args: func(p experiment.Place) []string {
			return []string{
				"-F", "-n", filepath.Join(p.Dir, "varnish"), "-f", vcl(p), "-a", p.Address, "-T", "none",
				// No jail: as root it would leave our private folder, and others have none.
				"-j", "none",
				"-s", "malloc," + strconv.Itoa(memory) + "m",
				// Threads for 1000 connections in its two pools, started beforehand.
				"-p", "thread_pool_min=600", "-p", "listen_depth=4096",
				"-p", "vsl_mask=-" + strings.Join(strings.Fields(silenced), ",-"),
			}
		},
		Prepare: func(p experiment.Place) error {
			return writeVCL(vcl(p), filepath.Join(m.Env.Bench.Dir, "peers", "varnish", "cache.vcl.tmpl"), m.api.Address())
		},
	}
}

// writeVCL makes Varnish's config from a template.
func writeVCL(name, source, upstream string) error {
	host, port, err := net.SplitHostPort(upstream)
	if err != nil {
		return fmt.Errorf("writing Varnish's VCL: %w", err)
	}
	return subject.WriteConfig(name, source, map[string]string{"Host": host, "Port": port})
}
