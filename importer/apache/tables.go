package apache

import (
	"slices"
	"strings"

	"millrace/importer/draft"
)

// otherwise is the outcome of a line that no translation has asked for.
func otherwise(d *draft.Directive) draft.Note {
	name := lower(d)
	for _, r := range defaults() {
		if slices.Contains(r.names, name) || slices.ContainsFunc(r.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return draft.Note{Outcome: draft.Defaulted, Why: r.why}
		}
	}
	if len(d.Args) == 1 && strings.EqualFold(d.Arg(0), "off") && slices.Contains(offHere(), name) {
		return draft.Note{Outcome: draft.Defaulted, Why: "it is off here, too"}
	}
	for _, r := range missing() {
		if slices.Contains(r.names, name) || slices.ContainsFunc(r.prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return draft.Note{Outcome: draft.Untranslated, Why: r.why}
		}
	}
	return draft.Note{Outcome: draft.Untranslated, Why: "not known to the importer here: see docs/config.md for what there is"}
}

// offHere are directives of which nothing is done here unless a config says so: "off" is
// what they are. Of no other line that is said.
func offHere() []string {
	return []string{
		"rewriteengine", "sslengine", "sslproxyengine", "proxypreservehost", "expiresactive", "cacheenable", "dav", "userdir", "xbithack", "substituteinheritbefore", "modpagespeed", "secruleengine", "xsendfile",
		"h2push", "mdmanagement", "authmerging", "session", "passengerenabled", "proxyrequests", "checkspelling",
	}
}

// reason is what became of directives, and why.
type reason struct {
	why      string
	names    []string
	prefixes []string
}

// defaults are directives that need no counterpart, by the reason.
func defaults() []reason {
	return []reason{
		{"the process looks after its threads, files and connections itself", []string{
			"mutex", "pidfile", "startservers", "minsparethreads", "maxsparethreads", "minspareservers", "maxspareservers", "threadlimit", "threadsperchild", "maxrequestworkers", "maxclients",
			"maxconnectionsperchild", "maxrequestsperchild", "serverlimit", "listenbacklog", "acceptfilter", "coredumpdirectory", "scoreboardfile", "enablesendfile", "enablemmap", "defaultruntimedir",
			"maxkeepaliverequests", "keepalive", "hostnamelookups", "httpprotocoloptions", "asyncrequestworkerfactor",
		}, nil},
		{"the service manager says who it runs as (see docs/install.md)", []string{"user", "group"}, nil},
		{"modules are built in", []string{"loadmodule", "loadfile", "define", "undefine", "serverroot", "typesconfig", "mimemagicfile"}, nil},
		{"br, zstd and gzip are built in and on for what shrinks: text, scripts, JSON, SVG", []string{"addoutputfilterbytype", "setoutputfilter", "addoutputfilter", "filterdeclare", "filterprovider", "filterchain", "filterprotocol"}, []string{"deflate", "brotli", "mod_gzip"}},
		{"content types are built in, UTF-8 for text", []string{"addcharset", "addlanguage", "languagepriority", "forcelanguagepriority", "defaulttype", "addencoding", "removeencoding", "removetype", "defaultlanguage", "removelanguage", "removecharset"}, nil},
		{"no version is told to clients", []string{"servertokens", "serversignature", "traceenable", "servername", "serveradmin"}, nil},
		{"ETag, If-Modified-Since and ranges are built in", []string{"fileetag", "maxranges", "acceptranges"}, nil},
		{"modern TLS: forward secrecy, tickets and sessions are chosen by itself", []string{"sslciphersuite", "sslhonorcipherorder", "sslsessioncache", "sslsessioncachetimeout", "sslsessiontickets", "sslcompression", "sslopensslconfcmd", "sslrandomseed", "sslpassphrasedialog", "sslusestapling", "sslstaplingcache", "ssloptions", "sslinsecurerenegotiation", "sslstrictsnivhostcheck", "sslprotocol", "sslverifydepth"}, []string{"sslstapling"}},
		{"HTTP/2 is always on over TLS", []string{"protocols", "protocolshonororder"}, []string{"h2"}},
		{"limits are built in (limits in docs/config.md)", []string{"timeout", "requestreadtimeout", "limitrequestfields", "limitrequestfieldsize", "limitrequestline", "limitxmlrequestbody", "limitinternalrecursion", "regexdefaultoptions"}, nil},
		{"the server's own messages go to the standard error; --log-level says which", []string{"errorlog", "loglevel", "errorlogformat", "globallog"}, nil},
		{"the log's formats are combined, common and json", []string{"logformat"}, nil},
		{"a route says it: there are no files with settings in folders", []string{"accessfilename", "allowoverride", "allowoverridelist"}, nil},
		{"symbolic links are followed within the root (see docs/config.md, static)", []string{"optionssymlinks"}, nil},
		{"an application's own pages for errors are passed on (intercept_errors)", []string{"proxyerroroverride"}, nil},
		{"addresses of redirects by upstreams are put right unasked", []string{"proxypassreverse", "proxypassreversecookiedomain", "proxypassreversecookiepath"}, nil},
		{"X-Forwarded fields and Via go unasked; nothing is passed on to what no route names", []string{"proxyrequests", "proxyvia", "proxyaddheaders", "proxyiobuffersize", "proxyreceivebuffersize", "proxybadheader", "proxyfcgibackendtype", "proxyfcgisetenvif", "proxymaxforwards", "proxystatus"}, []string{"proxyhtml"}},
		{"a folder's path leads to the one with a slash behind it", []string{"directoryslash", "directoryindexredirect", "usecanonicalname", "usecanonicalphysicalport", "checkspelling", "checkcaseonly", "contentdigest"}, nil},
		{"folders without an index are listed by static.listing, as HTML or JSON", []string{"indexoptions", "indexignore", "indexstylesheet", "indexorderdefault", "indexheadinsert", "indexignorereset", "headername", "readmename"}, []string{"addicon", "addalt", "adddescription", "defaulticon"}},
		{"metrics are on the admin listener (see docs/monitoring.md)", []string{"extendedstatus", "seerequesttail"}, nil},
		{"old browsers need no exceptions", []string{"browsermatch", "browsermatchnocase"}, nil},
		{"rules are for variables alone where something asks for them", []string{"setenvif", "setenvifnocase", "unsetenv", "passenv"}, nil},
		{"without Require nobody is asked for a password", []string{"authname", "authtype", "authuserfile", "authbasicprovider", "authbasicauthoritative", "authmerging"}, nil},
	}
}

// missing are directives that have no counterpart, by what to do.
func missing() []reason {
	return []reason{
		{"settings of PHP belong to php-fpm: write php_value[NAME] into its pool, or a .user.ini into the folder", nil, []string{"php_", "suphp", "lsphp"}},
		{"variables for PHP are php.params", []string{"setenv"}, nil},
		{"no CGI is run: let the application speak HTTP (proxy) or FastCGI (php)", []string{"scriptalias", "scriptaliasmatch", "scriptsock", "cgimapextension", "action", "script", "addhandler", "sethandler", "removehandler", "forcetype"}, []string{"wsgi", "fcgid", "passenger", "perl", "suexec"}},
		{"write a route or a rule with a regex (docs/routes.md)", []string{"aliasmatch", "alias", "proxypassmatch", "proxymatch", "proxy", "if", "elseif", "else", "virtualdocumentroot", "virtualscriptalias", "userdir"}, nil},
		{"what stands behind a script's name in the path is passed on to it", []string{"acceptpathinfo"}, nil},
		{"an encoded slash in a path is a slash, and a rule that keeps clients out looks at it so", []string{"allowencodedslashes"}, nil},
		{"tables map paths to texts (docs/routes.md)", []string{"rewritemap", "rewritelock"}, nil},
		{"this module is none of Apache's own: rate_limit, traps, access and challenge protect a site (docs/protection.md)", nil, []string{"sec", "qs_", "dos", "evasive", "limitipconn", "maxconnperip", "geoip", "maxmind"}},
		{"bodies are not changed on the way: do it in the application or when the site is built", []string{"substitute", "addinputfilter", "setinputfilter", "outputsed", "inputsed", "xbithack"}, []string{"ssi", "modpagespeed", "pagespeed"}},
		{"answers of other servers are kept by cache instead of proxy (docs/cache.md)", nil, []string{"cache"}},
		{"files are not written by clients (WebDAV): use another server for it", nil, []string{"dav"}},
		{"the speed of single answers is not limited", nil, []string{"ratelimit", "bandwidth", "bw"}},
		{"X-Sendfile has no counterpart: let the application send the file", nil, []string{"xsendfile"}},
		{"sessions belong to the application", nil, []string{"session"}},
		{"certificates come by themselves with tls.auto", nil, []string{"md"}},
		{"write it into headers of the site or the route (docs/routes.md)", []string{"header", "requestheader"}, nil},
		{"write it into access or auth (docs/protection.md)", nil, []string{"auth"}},
	}
}
