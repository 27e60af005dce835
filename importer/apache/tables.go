package apache

import (
	"millrace/importer/draft"
)

// otherwise is the outcome of a line that no translation has asked for.
func otherwise(d *draft.Directive) draft.Note {
	return draft.Tables{Defaults: defaults(), Off: offHere(), Missing: missing()}.Note(d, lower(d), "not known to the importer here: see docs/config.md for what there is")
}

// offHere are directives of which nothing is done here unless a config says so: "off" is
// what they are. Of no other line that is said.
func offHere() string {
	return `rewriteengine sslengine sslproxyengine proxypreservehost expiresactive cacheenable dav userdir xbithack substituteinheritbefore modpagespeed secruleengine xsendfile h2push mdmanagement authmerging session passengerenabled proxyrequests checkspelling`
}

// defaults are directives that need no counterpart, by the reason.
func defaults() []draft.Reason {
	return []draft.Reason{
		{Why: "the process looks after its threads, files and connections itself", Names: "mutex pidfile startservers minsparethreads maxsparethreads minspareservers maxspareservers threadlimit threadsperchild maxrequestworkers maxclients maxconnectionsperchild maxrequestsperchild serverlimit listenbacklog acceptfilter coredumpdirectory scoreboardfile enablesendfile enablemmap defaultruntimedir maxkeepaliverequests keepalive hostnamelookups httpprotocoloptions asyncrequestworkerfactor"},
		{Why: "the service manager says who it runs as (see docs/install.md)", Names: "user group"},
		{Why: "modules are built in", Names: "loadmodule loadfile define undefine serverroot typesconfig mimemagicfile"},
		{Why: "br, zstd and gzip are built in and on for what shrinks: text, scripts, JSON, SVG", Names: "addoutputfilterbytype setoutputfilter addoutputfilter filterdeclare filterprovider filterchain filterprotocol deflate* brotli* mod_gzip*"},
		{Why: "content types are built in, UTF-8 for text", Names: "addcharset addlanguage languagepriority forcelanguagepriority defaulttype addencoding removeencoding removetype defaultlanguage removelanguage removecharset"},
		{Why: "no version is told to clients", Names: "servertokens serversignature traceenable servername serveradmin"},
		{Why: "ETag, If-Modified-Since and ranges are built in", Names: "fileetag maxranges acceptranges"},
		{Why: "modern TLS: forward secrecy, tickets and sessions are chosen by itself", Names: "sslciphersuite sslhonorcipherorder sslsessioncache sslsessioncachetimeout sslsessiontickets sslcompression sslopensslconfcmd sslrandomseed sslpassphrasedialog sslusestapling sslstaplingcache ssloptions sslinsecurerenegotiation sslstrictsnivhostcheck sslprotocol sslverifydepth sslstapling*"},
		{Why: "HTTP/2 is always on over TLS", Names: "protocols protocolshonororder h2*"},
		{Why: "limits are built in (limits in docs/config.md)", Names: "timeout requestreadtimeout limitrequestfields limitrequestfieldsize limitrequestline limitxmlrequestbody limitinternalrecursion regexdefaultoptions"},
		{Why: "the server's own messages go to the standard error; --log-level says which", Names: "errorlog loglevel errorlogformat globallog"},
		{Why: "the log's formats are combined, common and json", Names: "logformat"},
		{Why: "a route says it: there are no files with settings in folders", Names: "accessfilename allowoverride allowoverridelist"},
		{Why: "symbolic links are followed within the root (see docs/config.md, static)", Names: "optionssymlinks"},
		{Why: "an application's own pages for errors are passed on (intercept_errors)", Names: "proxyerroroverride"},
		{Why: "addresses of redirects by upstreams are put right unasked", Names: "proxypassreverse proxypassreversecookiedomain proxypassreversecookiepath"},
		{Why: "X-Forwarded fields and Via go unasked; nothing is passed on to what no route names", Names: "proxyrequests proxyvia proxyaddheaders proxyiobuffersize proxyreceivebuffersize proxybadheader proxyfcgibackendtype proxyfcgisetenvif proxymaxforwards proxystatus proxyhtml*"},
		{Why: "a folder's path leads to the one with a slash behind it", Names: "directoryslash directoryindexredirect usecanonicalname usecanonicalphysicalport checkspelling checkcaseonly contentdigest"},
		{Why: "folders without an index are listed by static.listing, as HTML or JSON", Names: "indexoptions indexignore indexstylesheet indexorderdefault indexheadinsert indexignorereset headername readmename addicon* addalt* adddescription* defaulticon*"},
		{Why: "metrics are on the admin listener (see docs/monitoring.md)", Names: "extendedstatus seerequesttail"},
		{Why: "old browsers need no exceptions", Names: "browsermatch browsermatchnocase"},
		{Why: "rules are for variables alone where something asks for them", Names: "setenvif setenvifnocase unsetenv passenv"},
		{Why: "without Require nobody is asked for a password", Names: "authname authtype authuserfile authbasicprovider authbasicauthoritative authmerging"},
	}
}

// missing are directives that have no counterpart, by what to do.
func missing() []draft.Reason {
	return []draft.Reason{
		{Why: "settings of PHP belong to php-fpm: write php_value[NAME] into its pool, or a .user.ini into the folder", Names: "php_* suphp* lsphp*"},
		{Why: "variables for PHP are php.params", Names: "setenv"},
		{Why: "no CGI is run: let the application speak HTTP (proxy) or FastCGI (php)", Names: "scriptalias scriptaliasmatch scriptsock cgimapextension action script addhandler sethandler removehandler forcetype wsgi* fcgid* passenger* perl* suexec*"},
		{Why: "write a route or a rule with a regex (docs/routes.md)", Names: "aliasmatch alias proxypassmatch proxymatch proxy if elseif else virtualdocumentroot virtualscriptalias userdir"},
		{Why: "what stands behind a script's name in the path is passed on to it", Names: "acceptpathinfo"},
		{Why: "an encoded slash in a path is a slash, and a rule that keeps clients out looks at it so", Names: "allowencodedslashes"},
		{Why: "tables map paths to texts (docs/routes.md)", Names: "rewritemap rewritelock"},
		{Why: "this module is none of Apache's own: rate_limit, traps, access and challenge protect a site (docs/protection.md)", Names: "sec* qs_* dos* evasive* limitipconn* maxconnperip* geoip* maxmind*"},
		{Why: "bodies are not changed on the way: do it in the application or when the site is built", Names: "substitute addinputfilter setinputfilter outputsed inputsed xbithack ssi* modpagespeed* pagespeed*"},
		{Why: "answers of other servers are kept by cache instead of proxy (docs/cache.md)", Names: "cache*"},
		{Why: "files are not written by clients (WebDAV): use another server for it", Names: "dav*"},
		{Why: "the speed of single answers is not limited", Names: "ratelimit* bandwidth* bw*"},
		{Why: "X-Sendfile has no counterpart: let the application send the file", Names: "xsendfile*"},
		{Why: "sessions belong to the application", Names: "session*"},
		{Why: "certificates come by themselves with tls.auto", Names: "md*"},
		{Why: "write it into headers of the site or the route (docs/routes.md)", Names: "header requestheader"},
		{Why: "write it into access or auth (docs/protection.md)", Names: "auth*"},
	}
}
