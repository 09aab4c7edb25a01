"""Small networks under the names of large ones, with the attributes that scripts change."""

from torch import nn


class _ResNet(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x):
        return self.fc(self.avgpool(self.relu(self.bn1(self.conv1(x)))).flatten(1))


def resnet18(num_classes=1000, **_):
    """Return a network of one convolution."""
    return _ResNet(num_classes)


resnet34 = resnet50 = resnet18
