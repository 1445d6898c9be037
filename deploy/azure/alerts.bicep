// Alert rules over Application Insights: the most pressing ones of deploy/prometheus/rules.yml, for
// who has no Prometheus. Each looks at the last ten minutes, and so ends up to ten minutes after the cure. az deployment group create --template-file deploy/azure/alerts.bicep
//   --parameters appInsightsId=… actionGroupId=…
@description('Resource id of the Application Insights component')
param appInsightsId string
@description('Resource id of the action group that is told')
param actionGroupId string
param location string = resourceGroup().location

var rules = [
  {
    name: 'pushlease-dead-letters'
    severity: 2
    description: 'More than 100 dead letters wait.'
    query: 'customMetrics | where name == "pushlease.deadletters.waiting" | summarize v = max(value) by queue = tostring(customDimensions["queue"]) | where v > 100'
  }
  {
    name: 'pushlease-backlog'
    severity: 2
    description: 'The oldest message that waits for a receive was older than 15 minutes, for ten minutes.'
    query: 'customMetrics | where name == "pushlease.queue.oldest.age" | summarize v = max(value) by queue = tostring(customDimensions["queue"]), bin(timestamp, 1m) | summarize v = min(v), n = count() by queue | where v > 900 and n >= 5'
  }
  {
    name: 'pushlease-webhook-disabled'
    severity: 1
    description: 'A webhook was disabled by its own answers; its messages wait.'
    query: 'customMetrics | where name == "pushlease.webhook.stopped" | extend webhook = tostring(customDimensions["webhook"]), state = tostring(customDimensions["state"]), why = tostring(customDimensions["why"]) | summarize arg_max(timestamp, state, why) by webhook, one = iff(webhook == "other", strcat(state, " ", why), "") | where state == "disabled" and why != "operator"'
  }
  {
    name: 'pushlease-not-ready'
    severity: 1
    description: 'An instance was not ready for ten minutes: its /readyz says why. The last word of one that stops is no alert.'
    query: 'customMetrics | where name == "pushlease.ready" | summarize v = max(value), n = count() by cloud_RoleInstance | where v == 0 and n >= 5'
  }
  {
    name: 'pushlease-storage-tampered'
    severity: 1
    description: 'Another program has dropped a table, or deleted or damaged the registration of a webhook: /readyz says which.'
    query: 'customMetrics | where name == "pushlease.checks.failing" | where tostring(customDimensions["check"]) in ("registrations", "tables") and value > 0 | summarize v = max(value) by check = tostring(customDimensions["check"])'
  }
  {
    name: 'pushlease-degraded'
    severity: 2
    description: 'A check of /readyz has failed for ten minutes: it says why.'
    query: 'customMetrics | where name == "pushlease.checks.failing" | where tostring(customDimensions["check"]) !in ("registrations", "tables", "clock", "draining", "storage", "webhooks") | summarize v = min(value) by check = tostring(customDimensions["check"]), cloud_RoleInstance | where v > 0'
  }
  {
    name: 'pushlease-clock'
    severity: 2
    description: 'A clock differs from that of storage by more than half a minute.'
    query: 'customMetrics | where name == "pushlease.clock.ahead" | summarize v = avg(value) by cloud_RoleInstance | where abs(v) > 30'
  }
]

resource alerts 'Microsoft.Insights/scheduledQueryRules@2022-06-15' = [for rule in rules: {
  name: rule.name
  location: location
  properties: {
    description: rule.description
    severity: rule.severity
    enabled: true
    scopes: [appInsightsId]
    evaluationFrequency: 'PT5M'
    windowSize: 'PT10M'
    criteria: {
      allOf: [
        {
          query: rule.query
          timeAggregation: 'Count'
          operator: 'GreaterThan'
          threshold: 0
          failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
        }
      ]
    }
    actions: { actionGroups: [actionGroupId] }
  }
}]
