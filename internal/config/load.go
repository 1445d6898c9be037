package config

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	envPrefix  = "PUSHLEASE_"
	configFlag = "config"
	configEnv  = envPrefix + "CONFIG"
)

// Variables with our prefix that are no settings of the server.
var otherVariables = []string{configEnv, envPrefix + "SERVER", envPrefix + "API_KEY", envPrefix + "FUNCTIONS_KEY", envPrefix + "WEBHOOK_SECRET"}

// The sources of a value, in ascending precedence.
const (
	fromDefault = "default"
	fromFile    = "file"
	fromEnv     = "environment"
	fromFlag    = "flag"
)

// value is what one source says about one setting.
type value struct {
	text   string
	source string
	// where is how a person would find it: a flag, a variable, a line of a file.
	where string
}

// AddFlags defines a flag for every setting, and --config.
func AddFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "YAML file with settings ("+configEnv+")")
	for _, s := range table {
		flags.Var(&flagValue{s.Default, s.kind}, s.Flag, s.Help+" ("+s.Env+")")
		if s.kind == boolean {
			flags.Lookup(s.Flag).NoOptDefVal = "true"
		}
	}
}

// flagValue keeps a flag's text: Load parses it, so that one error tells all
// mistakes. It is a type of its own for the help, which names the kind.
type flagValue struct {
	text string
	kind kind
}

func (f *flagValue) String() string     { return f.text }
func (f *flagValue) Set(v string) error { f.text = v; return nil }
func (f *flagValue) Type() string       { return string(f.kind) }

// Load reads the settings: flags (those of AddFlags that were set; nil for none)
// before environ (as os.Environ gives it; empty values count as unset) before
// the YAML file that --config or PUSHLEASE_CONFIG names before the defaults.
//
// The error is an *Error that lists everything that is wrong.
func Load(flags *pflag.FlagSet, environ []string) (Config, error) {
	var bad problems
	env := readEnv(environ, &bad)
	values := map[string]value{}
	for _, s := range table {
		values[s.Name] = value{s.Default, fromDefault, "default"}
	}
	functionsStorage(env, values)
	if path, where := configPath(flags, env); path != "" {
		maps.Copy(values, readFile(path, where, &bad))
	}
	for _, s := range table {
		if text := env[s.Env]; text != "" {
			values[s.Name] = value{text, fromEnv, s.Env}
		}
		if flags != nil && flags.Changed(s.Flag) {
			values[s.Name] = value{flags.Lookup(s.Flag).Value.String(), fromFlag, "--" + s.Flag}
		}
	}
	c := Config{sources: map[string]string{}}
	for _, s := range table {
		v := values[s.Name]
		c.sources[s.Name] = v.source
		if v.text == "" {
			if s.Default != "" {
				bad.add(s.Name, v.where, "it is empty; leave it out for the default, "+s.Default)
			}
			continue
		}
		if err := s.set(&c, v.text); err != nil {
			bad.add(s.Name, v.where, err.Error())
		}
	}
	bad.contradictions(c, values, env)
	bad.hosted(c, values, env)
	if len(bad) > 0 {
		return Config{}, &Error{Problems: bad}
	}
	fillUnset(&c, env, Memory(os.DirFS("/")))
	return c, nil
}

func configPath(flags *pflag.FlagSet, env map[string]string) (path, where string) {
	if flags != nil && flags.Changed(configFlag) {
		return flags.Lookup(configFlag).Value.String(), "--" + configFlag
	}
	return env[configEnv], configEnv
}

// readEnv splits environ and refuses variables that look like settings and are
// none: a misspelt one would otherwise be ignored in silence.
func readEnv(environ []string, bad *problems) map[string]string {
	known := slices.Clone(otherVariables)
	for _, s := range table {
		known = append(known, s.Env)
	}
	env := map[string]string{}
	for _, line := range environ {
		name, text, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		env[name] = text
		if strings.HasPrefix(name, envPrefix) && !slices.Contains(known, name) && !fromKubernetes(name, text) {
			bad.add(name, "environment", "there is no such setting; "+suggest(name, known, "unset it"))
		}
	}
	return env
}

// fromKubernetes recognises the variables that Kubernetes sets in every pod for
// a Service whose name begins with pushlease.
func fromKubernetes(name, text string) bool {
	if strings.HasSuffix(name, "_SERVICE_HOST") || strings.HasSuffix(name, "_SERVICE_PORT") ||
		strings.Contains(name, "_SERVICE_PORT_") ||
		(strings.HasSuffix(name, "_PORT") && strings.Contains(text, "://")) {
		return true
	}
	_, rest, ok := strings.Cut(name, "_PORT_")
	number, protocol, _ := strings.Cut(rest, "_")
	return ok && number != "" && only(number, "0123456789") && protocol != ""
}
