// An Azure Monitor workbook over Application Insights, with the queries of queries.kql:
// az deployment group create --template-file deploy/azure/workbook.bicep --parameters appInsightsId=…
@description('Resource id of the Application Insights component')
param appInsightsId string
param location string = resourceGroup().location

resource workbook 'Microsoft.Insights/workbooks@2022-04-01' = {
  name: guid(appInsightsId, 'pushlease')
  location: location
  kind: 'shared'
  properties: {
    displayName: 'pushlease'
    category: 'workbook'
    sourceId: appInsightsId
    serializedData: string(loadJsonContent('workbook.json'))
  }
}
