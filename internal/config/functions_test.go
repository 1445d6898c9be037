package config

import (
	"strings"
	"testing"
)

func TestStorageUnderTheFunctionsHost(t *testing.T) {
	const port = "FUNCTIONS_CUSTOMHANDLER_PORT=7071"
	for _, tt := range []struct {
		name, want, client string
		env                []string
	}{
		{"connection string", "connection string of devstoreaccount1 [redacted]", "", []string{port, "AzureWebJobsStorage=UseDevelopmentStorage=true"}},
		{"account", "azure:mystorage", "", []string{port, "AzureWebJobsStorage__accountName=mystorage"}},
		{"identity", "azure:mystorage", "11111111-2222-3333-4444-555555555555", []string{port, "AzureWebJobsStorage__accountName=mystorage",
			"AzureWebJobsStorage__credential=managedidentity", "AzureWebJobsStorage__clientId=11111111-2222-3333-4444-555555555555"}},
		{"queue service", "azure:mystorage", "", []string{port, "AzureWebJobsStorage__queueServiceUri=https://mystorage.queue.core.windows.net"}},
		{"another cloud", "azure:mystorage;EndpointSuffix=core.chinacloudapi.cn", "", []string{port, "AzureWebJobsStorage__queueServiceUri=https://mystorage.queue.core.chinacloudapi.cn/"}},
		{"our own setting wins", "azure:other", "", []string{port, "AzureWebJobsStorage=UseDevelopmentStorage=true", "PUSHLEASE_STORAGE=azure:other"}},
		{"without the host", "sqlite:pushlease.db", "", []string{"AzureWebJobsStorage=UseDevelopmentStorage=true"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Load(nil, tt.env)
			if err != nil || c.Storage.String() != tt.want || c.ManagedIdentityClientID != tt.client {
				t.Errorf("%v, %s, client %s; want %s, %s", err, c.Storage, c.ManagedIdentityClientID, tt.want, tt.client)
			}
		})
	}
}

func TestThePollerIsRefusedWhereInstancesGoAway(t *testing.T) {
	hosted := []string{"FUNCTIONS_CUSTOMHANDLER_PORT=7071", "AzureWebJobsStorage=UseDevelopmentStorage=true", "PUSHLEASE_FUNCTIONS_POLLER=true"}
	for _, tt := range []struct {
		env  []string
		want string // in the refusal; empty when it is allowed
	}{
		{append([]string{"PUSHLEASE_INSTANCE=one"}, hosted...), "no two may share a name"},
		{[]string{"PUSHLEASE_INSTANCE=one", "AzureWebJobsStorage=UseDevelopmentStorage=true"}, ""},
		{append([]string{"WEBSITE_SKU=Dynamic"}, hosted...), "on the plan Dynamic"},
		{append([]string{"WEBSITE_SKU=FlexConsumption"}, hosted...), "on the plan FlexConsumption"},
		{append([]string{"WEBSITE_SKU=Brandnew"}, hosted...), "on the plan Brandnew"},
		{append([]string{"WEBSITE_SKU=ElasticPremium"}, hosted...), ""},
		{append([]string{"WEBSITE_SKU=PremiumV3"}, hosted...), ""},
		{hosted, ""},
		{[]string{"PUSHLEASE_FUNCTIONS_POLLER=true"}, "serve always polls"},
	} {
		_, err := Load(nil, tt.env)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%v: %v", tt.env, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%v: %v, want %q", tt.env, err, tt.want)
		}
	}
}

func TestNoFileUnderTheFunctionsHost(t *testing.T) {
	_, err := Load(nil, []string{"FUNCTIONS_CUSTOMHANDLER_PORT=7071"})
	if err == nil || !strings.Contains(err.Error(), "AzureWebJobsStorage") {
		t.Errorf("%v", err)
	}
}

// The host's configuration knows no case, and the last one counts.
func TestSettingsOfTheHostAreReadInAnyCase(t *testing.T) {
	environ := []string{"azurefunctionsjobhost__FunctionTimeout=00:01:00", "OTHER=x", "broken"}
	for name, want := range map[string]string{"AzureFunctionsJobHost__functionTimeout": "00:01:00", "other": "x", "broken": "", "none": ""} {
		if got, ok := HostSetting(environ, name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %t, want %q", name, got, ok, want)
		}
	}
	if got, ok := HostSetting(append(environ, "Empty="), "empty"); got != "" || !ok {
		t.Errorf("one that is empty is not there: %q, %t", got, ok)
	}
	if got, _ := HostSetting(append(environ, "Other=y"), "OTHER"); got != "y" {
		t.Errorf("the later one does not count: %q", got)
	}
}
