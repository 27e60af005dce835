package arm

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// silenced are the records that Varnish writes into its shared memory for each
// request. None of the servers keeps a log here, so it writes none either;
// errors and what its processes tell each other remain.
const silenced = "Begin End Link SessOpen SessClose ReqStart ReqMethod ReqURL ReqProtocol ReqHeader ReqUnset ReqAcct " +
	"RespProtocol RespStatus RespReason RespHeader RespUnset VCL_call VCL_return VCL_use VCL_acl VCL_Log Hit HitMiss HitPass " +
	"Timestamp Length TTL BereqMethod BereqURL BereqProtocol BereqHeader BereqUnset BereqAcct " +
	"BerespProtocol BerespStatus BerespReason BerespHeader BerespUnset BackendOpen BackendClose BackendStart " +
	"Fetch_Body Storage Gzip VSL Filters"

// varnishConfig is what bench/peers/varnish/cache.vcl.tmpl is filled with.
type varnishConfig struct{ Host, Port string }

// varnishCommand is varnishd's command with its VCL, which it writes first. It
// compiles that with the C compiler that Debian's package asks for.
func varnishCommand(e Env) ([]string, error) {
	host, port, err := net.SplitHostPort(e.Upstream)
	if err != nil {
		return nil, fmt.Errorf("writing Varnish's VCL: %w", err)
	}
	vcl := filepath.Join(e.Dir, "cache.vcl")
	source := filepath.Join(e.Bench, "peers", "varnish", "cache.vcl.tmpl")
	if err := fill(vcl, source, varnishConfig{host, port}, host, port); err != nil {
		return nil, fmt.Errorf("writing Varnish's VCL: %w", err)
	}
	return []string{
		"varnishd", "-F", "-n", filepath.Join(e.Dir, "varnish"), "-f", vcl, "-a", e.Address, "-T", "none",
		// No jail: as root it would leave our private folder, and others have none.
		"-j", "none",
		"-s", "malloc," + strconv.Itoa(e.Memory) + "m",
		// Threads for 1000 connections in its two pools, started beforehand.
		"-p", "thread_pool_min=600", "-p", "listen_depth=4096",
		"-p", "vsl_mask=-" + strings.Join(strings.Fields(silenced), ",-"),
	}, nil
}

// varnishPurge is what our VCL takes for a ban by tag.
func varnishPurge(e Env, tag string) Purge {
	return Purge{
		Network: "tcp", Address: e.Address,
		Text: fmt.Sprintf("BAN / HTTP/1.1\r\nHost: %s\r\nX-Tag: %s\r\n\r\n", e.Address, tag),
	}
}
