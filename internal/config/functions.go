package config

import (
	"net/url"
	"slices"
	"strings"
)

const (
	// functionsPort is set by the Azure Functions host in a custom handler's
	// environment, and by nobody else.
	functionsPort = "FUNCTIONS_CUSTOMHANDLER_PORT"
	hostStorage   = "AzureWebJobsStorage"
)

// functionsStorage makes the host's own storage the default in a custom handler: a
// connection string, or an account that is signed in to with an identity.
func functionsStorage(env map[string]string, values map[string]value) {
	if env[functionsPort] == "" {
		return
	}
	switch account, from := hostAccount(func(name string) string { return env[name] }, hostStorage); {
	case env[hostStorage] != "":
		values["storage"] = value{env[hostStorage], fromDefault, hostStorage}
	case account != "":
		values["storage"] = value{azurePrefix + account, fromDefault, from}
		if id := env[hostStorage+"__clientId"]; id != "" {
			values["managed_identity_client_id"] = value{id, fromDefault, hostStorage + "__clientId"}
		}
	}
}

// HostSetting reads a setting as the host does, whose configuration knows no case; environ is as of
// os.Environ. ok is false for one that is not there.
func HostSetting(environ []string, name string) (value string, ok bool) {
	for _, line := range environ {
		if n, v, is := strings.Cut(line, "="); is && strings.EqualFold(n, name) {
			value, ok = v, true
		}
	}
	return value, ok
}

// HostConnection is the storage that a trigger's connection names: a connection string, or an
// account that the host signs in to. ok is false where neither is set, or can't be read.
func HostConnection(getenv func(string) string, name string) (s Storage, ok bool) {
	for _, setting := range []string{"AzureWebJobs" + name, name} { // the host looks for both
		text := getenv(setting)
		if account, _ := hostAccount(getenv, setting); text == "" && account != "" {
			text = azurePrefix + account
		}
		if text == "" {
			continue
		}
		s, err := parseStorage(text)
		return s, err == nil && s.kind != StorageSQLite
	}
	return Storage{}, false
}

// hostAccount reads the name of the account that a connection of the host's names by its settings, with its
// suffix if that is not the usual one.
func hostAccount(getenv func(string) string, connection string) (account, from string) {
	if v := getenv(connection + "__accountName"); v != "" {
		return v, connection + "__accountName"
	}
	from = connection + "__queueServiceUri"
	u, err := url.Parse(getenv(from))
	if err != nil {
		return "", ""
	}
	account, suffix, ok := strings.Cut(u.Hostname(), ".queue.")
	if !ok {
		return "", ""
	}
	if suffix != "core.windows.net" {
		account += ";EndpointSuffix=" + suffix
	}
	return account, from
}

// keptAlive are the plans, by WEBSITE_SKU, whose instances the platform does not take away
// while nothing is invoked.
var keptAlive = []string{
	"ElasticPremium", "Basic", "Standard", "Premium", "PremiumV2", "PremiumV3", "PremiumV4", "PremiumContainer", "Isolated", "IsolatedV2",
}

// hosted finds what does not go together in a custom handler.
func (p *problems) hosted(c Config, values map[string]value, env map[string]string) {
	add := func(name, text string) { p.add(name, values[name].where, text) }
	under := env[functionsPort] != ""
	if under && c.Storage.Kind() == StorageSQLite {
		add("storage", "the Functions host receives from an Azure Storage account, and no file is kept there; set "+hostStorage+", or storage to the account of the queue triggers")
	}
	if under && values["instance"].text != "" {
		add("instance", "an app's settings are the same for all its instances, and no two may share a name; leave it out: each has its host's name and a random suffix then")
	}
	sku := env["WEBSITE_SKU"]
	switch {
	case !c.FunctionsPoller:
	case !under:
		add("functions_poller", "this is for an Azure Functions custom handler; serve always polls, so leave it out")
	case sku != "" && !slices.Contains(keptAlive, sku):
		add("functions_poller", "on the plan "+sku+" an instance goes away while nothing is invoked, whatever it is polling, and nothing wakes it; leave it out (the timer pump sees to queues without a trigger), or use a Premium or Dedicated plan with Always On, or Container Apps with at least one replica")
	}
}
